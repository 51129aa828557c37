package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// newBootstrapCommand is "moonsail proxy-config bootstrap".
func newBootstrapCommand() *cobra.Command {
	var f proxyConfigFlags
	cmd := &cobra.Command{
		Use:     "bootstrap PROXY",
		Aliases: []string{"b"},
		Short:   "The bootstrap that a proxy's Envoy began with",
		Long: `Shows what the Envoy of a proxy (by name.namespace or node id) began with, as Envoy itself tells it: who it is,
whom it asks for configuration, and what is not from there. What EnvoyFilters with applyTo BOOTSTRAP change is in it.
-o json and -o yaml give the whole.

` + whereAdmin("bootstrap"),
		Example: `  moonsail proxy-config bootstrap reviews-v1-1.shop
  moonsail proxy-config bootstrap reviews-v1-1.shop -o yaml
  moonsail proxy-config bootstrap reviews-v1-1.shop --admin 127.0.0.1:15000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.bootstrap(cmd, args[0]) },
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().StringVar(&f.admin, "admin", "", "`ADDRESS` of the admin interface of the proxy's Envoy")
	cmd.ValidArgsFunction = f.client.proxyNames(1)
	return cmd
}

// askedBy says by which way Envoy is asked, up to what is to be done where there is none.
const askedBy = `Envoy is asked by way of the control plane and the proxy's agent (see --agent-token-file of 'moonsail serve'), or at
--admin. Where the agent cannot be asked, that is port 15000 of the proxy's address if it is a loopback address; elsewhere`

// whereAdmin says where Envoy is asked by a command of proxy-config.
func whereAdmin(command string) string { return askedBy + "\n" + forwarded(command) }

// forwarded is how Envoy's own interface is reached in a cluster.
func forwarded(command string) string {
	return `forward the port first:

  kubectl -n shop port-forward reviews-v1-1 15000 & moonsail proxy-config ` + command + ` reviews-v1-1.shop --admin 127.0.0.1:15000`
}

func (f *proxyConfigFlags) bootstrap(cmd *cobra.Command, proxy string) error {
	c, err := f.find(cmd.Context(), proxy)
	if err != nil {
		return err
	}
	dump, err := f.dumped(cmd.Context(), c, url.Values{}, "say where its admin interface is with --admin")
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
	return f.out.Print(cmd.OutOrStdout(), b, func(w io.Writer) error { return printBootstrap(w, b) })
}

// find asks the control plane where a proxy is; with --admin that is not needed.
func (f *proxyConfigFlags) find(ctx context.Context, proxy string) (*comparedConfig, error) {
	c := &comparedConfig{ProxyConfig: &explain.ProxyConfig{}}
	if f.admin != "" && f.admin != noAdmin {
		return c, nil
	}
	return c, f.client.getOf(ctx, "/debug/proxies/", proxy, "/config/secrets", c.ProxyConfig)
}

// unreached says that nobody knows how to ask a proxy's Envoy.
func (f *proxyConfigFlags) unreached(proxy string, c *comparedConfig) error {
	why := errors.New("its address is not on this machine")
	switch {
	case f.admin == noAdmin:
		why = errors.New("--admin is none")
	case c.Unasked != "":
		why = errors.New(c.Unasked)
	}
	return &terminal.UserError{What: "the proxy's Envoy cannot be asked", Where: proxy, Err: why,
		Next: "forward its port 15000, and say with --admin where that is (--help has the command)"}
}

// bootstrapIn is the bootstrap of a config dump.
func bootstrapIn(dump []byte) (map[string]any, error) {
	var d struct {
		Configs []struct {
			Bootstrap map[string]any `json:"bootstrap"` // sorted, as Envoy tells metadata in another order each time
		} `json:"configs"`
	}
	if err := json.Unmarshal(dump, &d); err != nil {
		return nil, fmt.Errorf("the config dump of Envoy is not understood: %w", err)
	}
	for _, c := range d.Configs {
		if len(c.Bootstrap) > 0 {
			return c.Bootstrap, nil
		}
	}
	return nil, errors.New("the config dump of Envoy has no bootstrap")
}

// printBootstrap shows what people look for first.
func printBootstrap(w io.Writer, b map[string]any) error {
	t := terminal.NewTable("BOOTSTRAP", "")
	row := func(name, value string) { t.Row(name, orDash(value)) }
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

// adsClusters are the clusters that configuration is asked for.
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
			n = "0" // as protobuf leaves it out
		}
		parts = append(parts, n)
	}
	return strings.Join(parts, ".")
}
