// Package proxyconfig is the command `moonsail proxy-config`.
//
// proxyconfig.go has the command and the comparison, filter.go what is shown of it, envoy.go how Envoy is asked, rows.go the tables
// of each section; bootstrap.go, log.go and roots.go have subcommands.
package proxyconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// flags are the values of the flags of `moonsail proxy-config`.
type flags struct {
	client client.ControlPlane
	out    client.ListOutput
	admin  string
	filter filter

	namespace *string       // of the proxy
	timeout   time.Duration // of Envoy's answer
}

// noAdmin is the value of --admin that leaves Envoy out.
const noAdmin = "none"

// NewCommand returns the command `moonsail proxy-config`.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "proxy-config",
		Aliases: []string{"pc"},
		Short:   "Compare the intended, sent and actual configuration of a proxy",
		Long: `Show the configuration of a proxy: one section, or all, as it is intended, was sent, and is in Envoy; the
bootstrap of its Envoy; the levels of Envoy's loggers, which the command can also set; and for two
proxies, whether they trust the same root CAs. PROXY is name.namespace, a name with -n, a node id, or
TYPE/NAME as in kubectl: pod/NAME, deployment/NAME, service/NAME. Of several Pods it is the first.

Columns of sections:

  SENT   state of the newest version: ACKed, sent (without an answer), not sent, or refused
  ENVOY  same, differs, missing, warming (not in use yet), extra (in Envoy only), or ? if Envoy was
         not asked, or did not answer within --timeout

Of endpoints, STATUS is the health by which Envoy chooses them, or the configured one if Envoy was not
asked. OUTLIER CHECK is FAILED if outlier detection has ejected the endpoint. -o json has both as
endpointHealth, with all of Envoy's health flags.

Envoy's part comes through the control plane and the proxy's agent (see --agent-token-file of
'moonsail serve'), or from --admin. If the agent does not answer, it comes from port 15000 of the
proxy's address if this is a loopback address. Elsewhere, forward Envoy's port first:

  kubectl -n shop port-forward reviews-v1-1 15000 &
  moonsail proxy-config all reviews-v1-1.shop --admin 127.0.0.1:15000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Example: `  # Show the whole configuration of a proxy
  moonsail proxy-config all reviews-v1-1.shop

  # Show some routes in full
  moonsail proxy-config routes reviews-v1-1.shop --name ratings -o yaml

  # Set the level of a logger
  moonsail proxy-config log reviews-v1-1.shop --level rbac:debug

  # Compare root CAs
  moonsail proxy-config rootca-compare reviews-v1-1.shop ratings-1.shop`,
	}
	for _, s := range explain.Sections {
		cmd.AddCommand(newSectionCommand(s.Name))
	}
	cmd.AddCommand(newSectionCommand(explain.AllSections), newBootstrapCommand(), newLogCommand(), newRootsCommand())
	return cmd
}

// sectionAliases are istioctl's.
var sectionAliases = map[string][]string{
	"clusters": {"cluster", "c"}, "endpoints": {"endpoint", "ep", "eds"}, "listeners": {"listener", "l"},
	"routes": {"route", "r"}, "secrets": {"secret", "s"}, "extensions": {"extension", "ecds", "ec"}, explain.AllSections: {"a"},
}

// seeParent refers to the help of the parent command.
const seeParent = `'moonsail proxy-config --help' describes the output, and how Envoy is asked.`

func newSectionCommand(section string) *cobra.Command {
	var f flags
	what := section
	if section == explain.AllSections {
		what = "whole configuration"
	}
	cmd := &cobra.Command{
		Use:     section + " PROXY",
		Aliases: sectionAliases[section],
		Short:   "Show the " + what + " of a proxy: intended, sent and actual",
		Long: `Show the ` + what + ` of a proxy: as intended, as sent, and in Envoy. -o wide adds the version
and size of each resource, and the objects that it was made from. -o json and -o yaml print each
resource in full, with its state, and -o name the names. The resources alone, as istioctl prints them,
are '-o json | jq "[.resources[].resource]"'. ` + seeParent,
		Example: fmt.Sprintf(`  # Show the %[2]s
  moonsail proxy-config %[1]s reviews-v1-1.shop

  # Show some resources in full
  moonsail proxy-config %[1]s reviews-v1-1.shop --name reviews -o yaml`, section, what),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, section, args[0]) },
	}
	f.addFlags(cmd, " (none: do not ask Envoy)")
	f.out.AddFlag(cmd)
	f.filter.addFlags(cmd, section)
	f.completeFilter(cmd, section)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 3*time.Second, "maximum time for Envoy's answer; the table has ? without one")
	return cmd
}

// addFlags adds the flags of all commands for one proxy, but -o.
func (f *flags) addFlags(cmd *cobra.Command, admin string) {
	f.client.AddFlags(cmd)
	cmd.Flags().StringVar(&f.admin, "admin", "", "`ADDRESS` of Envoy's admin interface"+admin)
	cmd.ValidArgsFunction = f.client.ProxyNames(1)
	f.namespace = f.client.AddProxyNamespace(cmd, 1)
}

// comparedConfig is the result of a section's command.
type comparedConfig struct {
	*explain.ProxyConfig
	Resources []comparedResource `json:"resources"`
	Secrets   []explain.Secret   `json:"secrets,omitempty"` // those in Envoy
	Admin     string             `json:"admin,omitempty"`   // where Envoy was asked
	Unasked   string             `json:"unasked,omitempty"` // why its agent did not answer

	chosen string // describes the filter of resources; empty: all
	wide   bool   // tables have all columns
	hint   func(string) string
	late   bool // Envoy did not answer within --timeout
}

type comparedResource struct {
	explain.ConfigResource
	Envoy *explain.Verdict `json:"envoy,omitempty"`
	// EndpointHealth is the health of an EDS cluster's endpoints in Envoy; nil: unknown.
	EndpointHealth []endpointHealth `json:"endpointHealth,omitempty"`
}

func (f *flags) run(cmd *cobra.Command, section, proxy string) error {
	if f.timeout <= 0 {
		return terminal.UsageError{Err: errors.New("--timeout: must be longer than 0")}
	}
	if err := f.filter.check(); err != nil {
		return terminal.UsageError{Err: err}
	}
	config := &explain.ProxyConfig{}
	if err := f.client.GetProxy(cmd.Context(), "/debug/proxies/", proxy, "/config/"+section+"?full", config); err != nil {
		return err
	}
	out := &comparedConfig{ProxyConfig: config, hint: func(advice string) string { return terminal.Hint(cmd, advice) }}
	actual, err := f.actualInTime(cmd.Context(), out)
	if err != nil {
		return err
	}
	if out.late {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: Envoy did not answer within %s, so what it has is unknown: allow more time with --timeout\n", f.timeout)
	}
	if actual != nil && (section == "secrets" || section == explain.AllSections) {
		out.Secrets = actual.Secrets()
	}
	if err := out.compare(section, actual); err != nil {
		return err
	}
	if err := out.filter(&f.filter); err != nil {
		return err
	}
	if actual != nil && out.has("EDS") {
		f.addHealth(cmd.Context(), out)
	}
	out.wide = f.out.IsWide()
	return f.out.Print(cmd.OutOrStdout(), client.List{Value: out, Names: out.names,
		Table: func(w io.Writer) error { return printConfig(w, out, section, actual) }})
}

// compare adds the state in Envoy; nil: Envoy was not asked. The state of extensions stays unknown.
func (c *comparedConfig) compare(section string, actual *explain.Actual) error {
	for i := range c.ProxyConfig.Resources {
		r := comparedResource{ConfigResource: c.ProxyConfig.Resources[i]}
		if actual != nil && explain.Compares(r.Type) {
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

// names returns the names of the resources, for --name.
func (c *comparedConfig) names() []string {
	var out []string
	for i := range c.Resources {
		out = append(out, c.Resources[i].Name)
	}
	return out
}

// generic decodes the JSON of a resource of any type.
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
