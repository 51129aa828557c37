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

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// proxyConfigFlags are those of "moonsail proxy-config".
type proxyConfigFlags struct {
	client debugClient
	out    terminal.Output
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
		Long: `Shows the configuration of one proxy, named by name.namespace or node id: each section, or all, as
it is intended, was sent and is in Envoy; the bootstrap that Envoy began with; the levels of Envoy's loggers,
which it also sets; and of two proxies, whether they trust the same root CAs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Example: `  moonsail proxy-config all reviews-v1-1.shop
  moonsail proxy-config routes reviews-v1-1.shop --name ratings -o yaml
  moonsail proxy-config bootstrap reviews-v1-1.shop -o json
  moonsail proxy-config log reviews-v1-1.shop --level rbac:debug
  moonsail proxy-config rootca-compare reviews-v1-1.shop ratings-1.shop`,
	}
	for _, s := range explain.Sections {
		cmd.AddCommand(newSectionCommand(s.Name))
	}
	cmd.AddCommand(newSectionCommand(explain.AllSections), newBootstrapCommand(), newProxyLogCommand(), newRootsCommand())
	return cmd
}

// sectionAliases are istioctl's.
var sectionAliases = map[string][]string{
	"clusters": {"cluster", "c"}, "endpoints": {"endpoint", "ep", "eds"}, "listeners": {"listener", "l"},
	"routes": {"route", "r"}, "secrets": {"secret", "s"}, "extensions": {"extension", "ecds", "ec"}, explain.AllSections: {"a"},
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

` + whereAdmin(section) + `

-o json and -o yaml give the resources in full.`,
		Example: fmt.Sprintf(`  moonsail proxy-config %[1]s reviews-v1-1.shop
  moonsail proxy-config %[1]s reviews-v1-1.shop --name reviews -o yaml`, section),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, section, args[0]) },
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().StringVar(&f.admin, "admin", "", "`ADDRESS` of the admin interface of the proxy's Envoy, or "+noAdmin)
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

	named string // only resources with that in their names are in it; empty: all
}

type comparedResource struct {
	explain.ConfigResource
	Envoy *explain.Verdict `json:"envoy,omitempty"`
}

func (f *proxyConfigFlags) run(cmd *cobra.Command, section, proxy string) error {
	config := &explain.ProxyConfig{}
	if err := f.client.getOf(cmd.Context(), "/debug/proxies/", proxy, "/config/"+section+"?full", config); err != nil {
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

// askEnvoy reads a config dump.
func askEnvoy(ctx context.Context, address string, query url.Values) (json.RawMessage, error) {
	admin := envoy.NewAdmin(address)
	defer admin.Close()
	return admin.ConfigDump(ctx, query)
}

func (f *proxyConfigFlags) unasked(address string, err error, next string) error {
	var usage terminal.UsageError
	if errors.Is(err, context.Canceled) || errors.As(err, &usage) {
		return err
	}
	return &terminal.UserError{What: "the proxy's Envoy cannot be asked", Where: address, Err: err, Next: next}
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
	c.named = text
	c.Resources = slices.DeleteFunc(c.Resources, func(r comparedResource) bool { return !containsFold(r.Name, text) })
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
