package inspect

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// NewAuthzCommand returns `moonsail experimental authz`.
func NewAuthzCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "authz",
		Short: "Inspect the authorization policies of a proxy",
		Long:  `Inspect the authorization policies of a proxy. 'moonsail why' has those that decide one call.`,
		Example: `  # List who may call a Pod
  moonsail experimental authz check ratings-1.shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAuthzCheckCommand())
	return cmd
}

func newAuthzCheckCommand() *cobra.Command {
	var (
		plane client.ControlPlane
		out   client.ListOutput
	)
	cmd := &cobra.Command{
		Use:   "check PROXY",
		Short: "List the authorization policies in force at a proxy, and its mutual TLS modes",
		Long: `List the authorization policies in force at a proxy in the order of evaluation: CUSTOM, AUDIT, DENY, ALLOW.
Each rule is in words, with its line if the objects come from files. Then the list has what becomes of
calls that no rule matches, and the mutual TLS mode of each port.

PROXY is a connected proxy, as name.namespace, a name with -n, a node id, or TYPE/NAME. The list is
what the control plane has for the proxy; 'moonsail proxies NAME' shows whether the proxy has accepted it.`,
		Example: `  # List who may call a Pod
  moonsail experimental authz check ratings-1.shop

  # Name a Deployment
  moonsail x authz check -n shop deploy/ratings -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := &explain.ProxyPolicies{}
			if err := plane.GetProxy(cmd.Context(), "/debug/policies/", args[0], "", p); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), client.List{Value: p, Table: func(w io.Writer) error { return printPolicies(w, p) }})
		},
	}
	plane.AddFlags(cmd)
	out.AddFlagOfOne(cmd)
	plane.AddProxyNamespace(cmd, 1)
	cmd.ValidArgsFunction = plane.ProxyNames(1)
	return cmd
}

func printPolicies(w io.Writer, p *explain.ProxyPolicies) error {
	s := terminal.StyleFor(w)
	title := s.Bold(terminal.Escape(p.Proxy))
	if p.ServiceAccount != "" {
		title += ", service account " + terminal.Escape(p.ServiceAccount)
	}
	if _, err := fmt.Fprintf(w, "%s\n\n", title); err != nil {
		return err
	}
	if len(p.Policies) > 0 {
		t := terminal.NewTable("ACTION", "POLICY", "RULE", "MATCHES", "WHERE")
		for i := range p.Policies {
			addPolicy(t, &p.Policies[i])
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "all other calls are %s\n", p.Default); err != nil || len(p.MutualTLS) == 0 {
		return err
	}
	t := terminal.NewTable("PORT", "MUTUAL TLS", "DECIDED BY")
	for i := range p.MutualTLS {
		m := &p.MutualTLS[i]
		port := "others"
		if m.Port != 0 {
			port = fmt.Sprint(m.Port)
		}
		var by []string
		for _, k := range m.Objects {
			by = append(by, k.String())
		}
		t.Row(port, string(m.Mode), terminal.OrDash(strings.Join(by, ", ")))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w)
}

// addPolicy adds a row for each rule of a policy.
func addPolicy(t *terminal.Table, p *explain.PolicyInForce) {
	action, name := string(p.Action), p.Object.Namespace+"/"+p.Object.Name
	if p.Provider != "" {
		action += " (" + terminal.Escape(p.Provider) + ")"
	}
	if p.DryRun {
		action += " (dry run)"
	}
	if len(p.Rules) == 0 {
		t.Row(action, name, "-", "no call: it has no rules", terminal.Escape(p.Origin))
	}
	for _, r := range p.Rules {
		t.Row(action, name, strings.TrimPrefix(r.Field, "spec."), terminal.Escape(r.Calls), terminal.Escape(r.Origin))
	}
}
