package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/terminal"
)

// NewInternalDebugCommand returns `moonsail experimental internal-debug`.
func NewInternalDebugCommand() *cobra.Command {
	var (
		plane     client.ControlPlane
		all, list bool
	)
	cmd := &cobra.Command{
		Use:     "internal-debug PAGE",
		Aliases: []string{"idebug"},
		Short:   "Print a debug page of istiod's",
		Long: `Print one of istiod's debug pages, as JSON: syncz, registryz, configz, "config_dump?proxyID=PROXY" and
others. --list lists their names.`,
		Example: `  # List the pages
  moonsail experimental internal-debug --list

  # Print the state of proxies, as istiod reports it
  moonsail experimental internal-debug syncz

  # Print the endpoints of a proxy
  moonsail experimental internal-debug 'edsz?proxyID=reviews-v1-1.shop'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			if err := plane.Get(cmd.Context(), "/debug/list", &names); err != nil {
				return err
			}
			if list {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(names, "\n"))
				return err
			}
			if len(args) == 0 {
				return terminal.UsageError{Err: errors.New("PAGE is missing: use one of " + strings.Join(names, ", "))}
			}
			page, query, _ := strings.Cut(args[0], "?")
			query, err := ofProxy(cmd.Context(), &plane, query)
			if err != nil {
				return err
			}
			if !slices.Contains(names, page) {
				return terminal.UsageError{Err: fmt.Errorf("debug page %q: unknown%s: use one of %s", page, spelling.DidYouMean(page, names), strings.Join(names, ", "))}
			}
			path := strings.TrimSuffix("/debug/"+page+"?"+query, "?")
			if !all {
				text, err := plane.Text(cmd.Context(), path)
				if err != nil {
					return plane.ExplainPage(cmd.Context(), query, err)
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return printEach(cmd, &plane, path)
		},
	}
	plane.AddFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "print the pages of all replicas, by name")
	cmd.Flags().BoolVarP(&list, "list", "L", false, "list the names of pages")
	return cmd
}

// ofProxy replaces TYPE/NAME in a query by the name of a proxy.
func ofProxy(ctx context.Context, plane *client.ControlPlane, query string) (string, error) {
	values, err := url.ParseQuery(query)
	name := values.Get("proxyID")
	if err != nil || !strings.Contains(name, "/") {
		return query, nil
	}
	if name, err = plane.ResolveProxy(ctx, name); err != nil {
		return "", err
	}
	values.Set("proxyID", name)
	return values.Encode(), nil
}

// printEach prints a page of each replica, after its name.
func printEach(cmd *cobra.Command, plane *client.ControlPlane, path string) error {
	replicas, err := plane.Replicas(cmd.Context())
	if err != nil {
		return err
	}
	texts := make([][]byte, len(replicas))
	err = plane.Each(cmd.Context(), func(i int, r *client.Replica) (err error) {
		texts[i], err = r.Text(cmd.Context(), path)
		return err
	})
	if err != nil {
		return err
	}
	for i, r := range replicas {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "# %s\n%s", r.Name, texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// NewEnvoyStatsCommand returns `moonsail experimental envoy-stats`.
func NewEnvoyStatsCommand() *cobra.Command {
	var plane client.ControlPlane
	cmd := &cobra.Command{
		Use:     "envoy-stats PROXY",
		Aliases: []string{"es"},
		Short:   "Print the statistics of a proxy's Envoy",
		Long: `Print the statistics of a proxy's Envoy, in the form of Prometheus. The control plane asks the proxy's
agent for them.

Envoy's metrics of calls begin with envoy_istio_. Their label __call has, separated by "|": the reporter
(source or destination), the protocol, the HTTP status, the gRPC status, Envoy's response flags, the
service, the identities of the workload and of the other end, and the workload of the other end (name;
namespace;canonical service;revision;cluster). The agent turns them into Istio's metrics with their
labels, such as istio_requests_total: see its page /stats/prometheus, port 15020 of the Pod.
'moonsail dependencies' lists the calls, with their errors.`,
		Example: `  # Print the statistics of a proxy
  moonsail experimental envoy-stats reviews-v1-1.shop`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := plane.ProxyText(cmd.Context(), args[0], "/envoy/stats")
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	plane.AddFlags(cmd)
	cmd.ValidArgsFunction = plane.ProxyNames(1)
	plane.AddProxyNamespace(cmd, 1)
	return cmd
}
