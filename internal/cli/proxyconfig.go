package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/agent"
	"github.com/moonsail/moonsail/internal/envoy"
	"github.com/moonsail/moonsail/internal/explain"
)

// proxyConfigFlags are those of "moonsail proxy-config".
type proxyConfigFlags struct {
	client debugClient
	out    Output
	admin  string
	name   string
}

// noAdmin is --admin where Envoy is not to be asked.
const noAdmin = "none"

// NewProxyConfigCommand is "moonsail proxy-config".
func NewProxyConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "proxy-config",
		Aliases: []string{"pc"},
		Short:   "Compare what a proxy is to have with what it was sent, and with what its Envoy has",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Example: "  moonsail proxy-config all reviews-v1-1.shop",
	}
	for _, s := range explain.Sections {
		cmd.AddCommand(newSectionCommand(s.Name))
	}
	cmd.AddCommand(newSectionCommand(explain.AllSections))
	return cmd
}

// sectionAliases are istioctl's.
var sectionAliases = map[string][]string{
	"clusters": {"cluster", "c"}, "endpoints": {"endpoint", "ep"}, "listeners": {"listener", "l"},
	"routes": {"route", "r"}, "secrets": {"secret", "s"}, "extensions": {"extension", "ecds"}, explain.AllSections: {"a"},
}

func newSectionCommand(section string) *cobra.Command {
	var f proxyConfigFlags
	what := section
	if section == explain.AllSections {
		what = "whole configuration"
	}
	cmd := &cobra.Command{
		Use:     section + " PROXY",
		Aliases: sectionAliases[section],
		Short:   "The " + what + " of a proxy: intended, sent and actual",
		Long: `Lists what a proxy is to have (by name.namespace or node id), and for each resource

  SENT   how far its newest form has come on the proxy's stream: ACKed, sent (and not
         answered), not sent, or refused
  ENVOY  what its Envoy has: same, differs, missing, warming (there, and not in use yet),
         extra (there, and not to be there), or ? where Envoy was not asked

Envoy is asked by way of the control plane and the proxy's agent (see --agent-token-file
of 'moonsail serve'), or at --admin. Where the agent cannot be asked, that is port 15000 of
the proxy's address if it is a loopback address; elsewhere forward the port first:

  kubectl -n shop port-forward reviews-v1-1 15000 & moonsail proxy-config ` + section + ` reviews-v1-1.shop --admin 127.0.0.1:15000

-o json and -o yaml give the resources in full.`,
		Example: fmt.Sprintf(`  moonsail proxy-config %[1]s reviews-v1-1.shop
  moonsail proxy-config %[1]s reviews-v1-1.shop --name reviews -o yaml`, section),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, section, args[0]) },
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().StringVar(&f.admin, "admin", "", "`ADDRESS` of the admin interface of the proxy's Envoy, or none")
	cmd.Flags().StringVar(&f.name, "name", "", "only resources whose name has that `TEXT` in it")
	cmd.ValidArgsFunction = f.client.proxyNames(1)
	return cmd
}

// comparedConfig is what "moonsail proxy-config -o json" prints.
type comparedConfig struct {
	*explain.ProxyConfig
	Resources []comparedResource `json:"resources"`
	Secrets   []explain.Secret   `json:"secrets,omitempty"` // in Envoy
	Admin     string             `json:"admin,omitempty"`   // where Envoy was asked
	Unasked   string             `json:"unasked,omitempty"` // why its agent was not
}

type comparedResource struct {
	explain.ConfigResource
	Envoy *explain.Verdict `json:"envoy,omitempty"`
}

func (f *proxyConfigFlags) run(cmd *cobra.Command, section, proxy string) error {
	config := &explain.ProxyConfig{}
	page := "/debug/proxies/" + url.PathEscape(proxy) + "/config/" + section + "?full"
	if err := f.client.get(cmd.Context(), page, config); err != nil {
		return err
	}
	out := &comparedConfig{ProxyConfig: config}
	actual, err := f.actual(cmd.Context(), out)
	if err != nil {
		return err
	}
	if actual != nil && (section == "secrets" || section == explain.AllSections) {
		out.Secrets = actual.Secrets()
	}
	if err := out.compare(section, actual); err != nil {
		return err
	}
	out.filter(f.name)
	return f.out.Print(cmd.OutOrStdout(), out, func(w io.Writer) error { return printConfig(w, out, section, actual) })
}

// adminOf is where the proxy's Envoy is asked; "" where that is not known.
func (f *proxyConfigFlags) adminOf(c *explain.ProxyConfig) string {
	switch f.admin {
	case noAdmin:
		return ""
	case "":
		if len(c.IPs) == 0 {
			return ""
		}
		if a, err := netip.ParseAddr(c.IPs[0]); err != nil || !a.IsLoopback() {
			return ""
		}
		return net.JoinHostPort(c.IPs[0], fmt.Sprint(agent.DefaultAdminPort))
	}
	return f.admin
}

// askEnvoy reads what an Envoy has.
func askEnvoy(ctx context.Context, address string) (*explain.Actual, error) {
	admin := envoy.NewAdmin(address)
	defer admin.Close()
	text, err := admin.ConfigDump(ctx, url.Values{explain.DumpQuery: {""}})
	if err != nil {
		return nil, err
	}
	return explain.ParseDump(text)
}

func (f *proxyConfigFlags) unasked(address string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &UserError{What: "the proxy's Envoy cannot be asked", Where: address, Err: err,
		Next: "say where its admin interface is with --admin, or leave Envoy out with --admin none"}
}

// compare adds Envoy's side; nil: it was not asked.
func (c *comparedConfig) compare(section string, actual *explain.Actual) error {
	for i := range c.ProxyConfig.Resources {
		r := comparedResource{ConfigResource: c.ProxyConfig.Resources[i]}
		if actual != nil {
			v, err := actual.Compare(&r.ConfigResource)
			if err != nil {
				return err
			}
			r.Envoy = &v
		}
		c.Resources = append(c.Resources, r)
	}
	if actual == nil {
		return nil
	}
	for _, r := range actual.Extra(section, c.ProxyConfig.Resources) {
		c.Resources = append(c.Resources, comparedResource{ConfigResource: r, Envoy: &explain.Verdict{State: explain.Extra}})
	}
	return nil
}

func (c *comparedConfig) filter(text string) {
	c.Resources = slices.DeleteFunc(c.Resources, func(r comparedResource) bool { return !containsFold(r.Name, text) })
}

// summaries are the tables of sections: what tells their resources apart, for people.
func printConfig(w io.Writer, c *comparedConfig, section string, actual *explain.Actual) error {
	s := StyleFor(w)
	for _, sec := range explain.Sections {
		if section != sec.Name && (section != explain.AllSections || sec.Name == "extensions" && !c.has("ECDS", "BDS")) {
			continue // only agents have extensions, by streams of their own
		}
		if err := printSection(w, s, c, sec.Name, section == explain.AllSections); err != nil {
			return err
		}
	}
	if err := printSecrets(w, s, c); err != nil {
		return err
	}
	if err := printDifferences(w, s, c); err != nil || actual != nil {
		return err
	}
	if c.Unasked != "" {
		_, err := fmt.Fprintln(w, s.Warn("Envoy itself was not asked: "+c.Unasked))
		return err
	}
	_, err := fmt.Fprintln(w, s.Dim("Envoy itself was not asked: say where its admin interface is with --admin"))
	return err
}

// has tells whether there are resources of some types.
func (c *comparedConfig) has(types ...string) bool {
	return slices.ContainsFunc(c.Resources, func(r comparedResource) bool { return slices.Contains(types, r.Type) })
}

func printSection(w io.Writer, s Style, c *comparedConfig, name string, titled bool) error {
	sum := summaries[name]
	t := NewTable(append(slices.Clone(sum.headings), "SENT", "ENVOY")...)
	rows := 0
	for i := range c.Resources {
		r := &c.Resources[i]
		if !slices.Contains(sum.types, r.Type) {
			continue
		}
		list, err := sum.rows(r)
		if err != nil {
			return err
		}
		for _, row := range list {
			row = append(row, make([]string, len(sum.headings)-len(row))...)
			t.Row(append(row, sentCell(s, r), envoyCell(s, r))...)
			rows++
		}
	}
	if titled {
		if _, err := fmt.Fprintf(w, "%s\n", s.Bold(name)); err != nil {
			return err
		}
	}
	if rows == 0 {
		_, err := fmt.Fprintf(w, "no %s\n%s", name, map[bool]string{true: "\n"}[titled])
		return err
	}
	if err := t.Write(w); err != nil || !titled {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func sentCell(s Style, r *comparedResource) string {
	switch r.Sent {
	case "":
		return s.Dim("-")
	case "ACKed":
		return s.Good(r.Sent)
	case "refused":
		return s.Bad(r.Sent)
	}
	return s.Warn(r.Sent)
}

func envoyCell(s Style, r *comparedResource) string {
	switch {
	case r.Envoy == nil:
		return s.Dim("?")
	case r.Envoy.State == explain.Same:
		return s.Good(r.Envoy.State)
	case r.Envoy.State == explain.Warming:
		return s.Warn(r.Envoy.State)
	}
	return s.Bad(r.Envoy.State)
}

// printDifferences tells what Envoy refused, and where it has something else.
func printDifferences(w io.Writer, s Style, c *comparedConfig) error {
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.Message != "" {
			if _, err := fmt.Fprintf(w, "\n%s %s %s, held back until it differs:\n  %s\n", s.Bad("refused"), r.Type, r.Name, r.Message); err != nil {
				return err
			}
		}
		if r.Envoy == nil || len(r.Envoy.Differences) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s %s %s:\n", s.Bad(r.Envoy.State), r.Type, r.Name); err != nil {
			return err
		}
		for _, d := range r.Envoy.Differences {
			if _, err := fmt.Fprintf(w, "  %s\n", d); err != nil {
				return err
			}
		}
	}
	return nil
}

// generic reads a resource's JSON without knowing its type.
func generic(r *comparedResource) (map[string]any, error) {
	if len(r.Resource) == 0 {
		return nil, nil
	}
	var v map[string]any
	if err := json.Unmarshal(r.Resource, &v); err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
	}
	return v, nil
}
