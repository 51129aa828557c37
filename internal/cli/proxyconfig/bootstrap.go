package proxyconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/terminal"
)

func newBootstrapCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:     "bootstrap PROXY",
		Aliases: []string{"b"},
		Short:   "Show the bootstrap of a proxy's Envoy",
		Long: `Show the bootstrap of a proxy's Envoy, as Envoy reports it: its node, its source of configuration, and
its static resources. The bootstrap contains the changes of EnvoyFilters with applyTo BOOTSTRAP.

-o json and -o yaml print it in full. ` + seeParent,
		Example: `  # Show the bootstrap
  moonsail proxy-config bootstrap reviews-v1-1.shop

  # Print it in full
  moonsail proxy-config bootstrap reviews-v1-1.shop -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.bootstrap(cmd, args[0]) },
	}
	f.addFlags(cmd, "")
	f.out.AddFlagOfOne(cmd)
	return cmd
}

func (f *flags) bootstrap(cmd *cobra.Command, proxy string) error {
	c, err := f.find(cmd.Context(), proxy)
	if err != nil {
		return err
	}
	dump, err := f.dumped(cmd.Context(), c, url.Values{}, "set --admin to its admin interface")
	if err == nil && dump == nil {
		err = f.unreached(proxy, c)
	}
	if err != nil {
		return err
	}
	b, err := bootstrapIn(dump)
	if err != nil {
		return err
	}
	return f.out.Print(cmd.OutOrStdout(), client.List{Value: b, Table: func(w io.Writer) error { return printBootstrap(w, b) }})
}

// bootstrapIn returns the bootstrap in a config dump.
func bootstrapIn(dump []byte) (map[string]any, error) {
	var d struct {
		Configs []struct {
			Bootstrap map[string]any `json:"bootstrap"` // a map, since Envoy changes the order of metadata each time
		} `json:"configs"`
	}
	if err := json.Unmarshal(dump, &d); err != nil {
		return nil, fmt.Errorf("config dump of Envoy: invalid: %w", err)
	}
	for _, c := range d.Configs {
		if len(c.Bootstrap) > 0 {
			return c.Bootstrap, nil
		}
	}
	return nil, errors.New("config dump of Envoy: no bootstrap")
}

// printBootstrap prints the most important fields.
func printBootstrap(w io.Writer, b map[string]any) error {
	t := terminal.NewTable("BOOTSTRAP", "")
	row := func(name, value string) { t.Row(name, terminal.OrDash(value)) }
	row("node id", text(b, "node", "id"))
	row("node cluster", text(b, "node", "cluster"))
	row("locality", strings.Trim(strings.Join([]string{
		text(b, "node", "locality", "region"), text(b, "node", "locality", "zone"), text(b, "node", "locality", "sub_zone")}, "/"), "/"))
	row("envoy", versionOf(at(b, "node", "user_agent_build_version")))
	row("interception", text(b, "node", "metadata", "INTERCEPTION_MODE"))
	row("service account", text(b, "node", "metadata", "SERVICE_ACCOUNT"))
	row("configuration from", strings.Join(adsClusters(b), ", "))
	row("admin", addressIn(at(b, "admin", "address")))
	for _, kind := range []string{"clusters", "listeners", "secrets"} {
		var names []string
		for _, r := range items(b, "static_resources", kind) {
			names = append(names, text(r, "name"))
		}
		row("static "+kind, strings.Join(names, ", "))
	}
	return t.Write(w)
}

// adsClusters returns the clusters from which Envoy gets its configuration.
func adsClusters(b map[string]any) []string {
	var out []string
	for _, s := range items(b, "dynamic_resources", "ads_config", "grpc_services") {
		out = append(out, text(s, "envoy_grpc", "cluster_name"))
	}
	return out
}

func addressIn(a any) string {
	if path := text(a, "pipe", "path"); path != "" {
		return path
	}
	if host := text(a, "socket_address", "address"); host != "" {
		return host + ":" + text(a, "socket_address", "port_value")
	}
	return ""
}

func versionOf(v any) string {
	if at(v, "version") == nil {
		return ""
	}
	var parts []string
	for _, part := range []string{"major_number", "minor_number", "patch"} {
		n := text(v, "version", part)
		if n == "" {
			n = "0" // protobuf leaves it out
		}
		parts = append(parts, n)
	}
	return strings.Join(parts, ".")
}
