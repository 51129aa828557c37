package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// NewStaleCommand is "moonsail stale".
func NewStaleCommand() *cobra.Command {
	var (
		client debugClient
		out    terminal.Output
	)
	cmd := &cobra.Command{
		Use:   "stale",
		Short: "List proxies that still hold endpoints which are gone, and since when",
		Long: `Lists connected proxies that were not brought to forget an endpoint that is gone or not
ready any more: they may still send calls to it. GONE FOR counts from when the control plane
saw the endpoint go.

Then the proxies that are disconnected: where their processes live, they go on with the
endpoints that they had. Proxies whose own Pod or endpoint is gone are left out.

Where there are several control planes, the proxies are those of all, and one that does not
answer is named. --local lists those of the control plane at --address alone.

The metric moonsail_stale_proxies counts the same of one control plane, from one second on.`,
		Example: `  moonsail stale
  moonsail stale --local     # of several control planes, the proxies of this one
  moonsail stale -o json | jq '.holders[] | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &explain.Stale{}
			if err := client.get(cmd.Context(), client.scoped("/debug/stale"), s); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), s, func(w io.Writer) error { return printStale(w, s) })
		},
	}
	client.addFlags(cmd)
	out.AddFlag(cmd)
	client.addLocalFlag(cmd)
	return cmd
}

func printStale(w io.Writer, s *explain.Stale) error {
	style := terminal.StyleFor(w)
	if err := printHolders(w, style, s); err != nil {
		return err
	}
	for _, p := range s.Away {
		if _, err := fmt.Fprintf(w, "%s.%s: disconnected for %s; if it runs, it does not know that %s went\n",
			p.Name, p.Namespace, age(s.Now, p.Since), plural(p.Endpoints, "endpoint")); err != nil {
			return err
		}
	}
	return printUntold(w, style, s.Others)
}

func printHolders(w io.Writer, style terminal.Style, s *explain.Stale) error {
	if len(s.Holders) == 0 {
		text := style.Good("no connected proxy holds an endpoint that is gone")
		if isSilent(s.Others) {
			text = style.Warn("no connected proxy that is known of holds an endpoint that is gone")
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	t := terminal.NewTable("PROXY", "ENDPOINT", "GONE FOR", "CLUSTER", "WHY")
	for i := range s.Holders {
		h := &s.Holders[i]
		p := &distribution.ProxySyncStatus{Name: h.Name, Namespace: h.Namespace, Reasons: h.Reasons, ControlPlane: h.ControlPlane}
		t.Row(proxyOf(p), h.Address, style.Bad(age(s.Now, h.Since)), h.Cluster, why(p, s.Now))
	}
	return t.Write(w)
}
