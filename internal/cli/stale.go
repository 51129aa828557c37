package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/explain"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// NewStaleCommand is "moonsail stale".
func NewStaleCommand() *cobra.Command {
	var (
		client debugClient
		out    Output
	)
	cmd := &cobra.Command{
		Use:   "stale",
		Short: "List proxies that still hold endpoints which are gone, and since when",
		Long: `Lists connected proxies that were not brought to forget an endpoint that is gone or not
ready any more: they may still send calls to it. GONE FOR counts from when the control plane
saw the endpoint go.

Then the proxies that are disconnected: where their processes live, they go on with the
endpoints that they had. Proxies whose own Pod or endpoint is gone are left out.

The metric moonsail_stale_proxies counts the same, from one second on.`,
		Example: `  moonsail stale
  moonsail stale -o json | jq '.holders[] | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &explain.Stale{}
			if err := client.get(cmd.Context(), "/debug/stale", s); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), s, func(w io.Writer) error { return printStale(w, s) })
		},
	}
	client.addFlags(cmd)
	out.AddFlag(cmd)
	return cmd
}

func printStale(w io.Writer, s *explain.Stale) error {
	style := StyleFor(w)
	if len(s.Holders) == 0 {
		if _, err := fmt.Fprintln(w, style.Good("no connected proxy holds an endpoint that is gone")); err != nil {
			return err
		}
	} else {
		t := NewTable("PROXY", "ENDPOINT", "GONE FOR", "CLUSTER", "WHY")
		for i := range s.Holders {
			h := &s.Holders[i]
			t.Row(h.Name+"."+h.Namespace, h.Address, style.Bad(age(s.Now, h.Since)), h.Cluster,
				why(&server.Whereabouts{Reasons: h.Reasons}, s.Now))
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	for _, p := range s.Away {
		if _, err := fmt.Fprintf(w, "%s.%s: disconnected for %s; if it runs, it does not know that %s went\n",
			p.Name, p.Namespace, age(s.Now, p.Since), plural(p.Endpoints, "endpoint")); err != nil {
			return err
		}
	}
	return nil
}
