package inspect

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

func newStaleCommand() *cobra.Command {
	var (
		plane      client.ControlPlane
		out        client.ListOutput
		namespaces client.Namespaces
	)
	cmd := &cobra.Command{
		Use:   "stale",
		Short: "List proxies that still hold removed endpoints",
		Long: `List connected proxies that still hold an endpoint that is gone or no longer ready. They may still send
requests to it. GONE FOR counts from the moment when the control plane saw the removal.

After these, it lists the disconnected proxies whose own Pod or endpoint is still there, with the number
of endpoints that were removed since they disconnected. If their processes run, they still use these.
-o name leaves out proxies without such endpoints.

With several control planes, the list covers the proxies of all, and names control planes that do not
answer. --local lists the proxies of one control plane alone.

The metric moonsail_stale_proxies counts the same for one control plane, from one second on.`,
		Example: `  # List stale proxies
  moonsail stale

  # List their names
  moonsail stale -o name`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &explain.Stale{}
			if err := plane.Get(cmd.Context(), plane.Scoped("/debug/stale"), s); err != nil {
				return err
			}
			s.Holders = slices.DeleteFunc(s.Holders, func(h explain.StaleHolder) bool { return !namespaces.Has(h.Namespace) })
			s.Away = slices.DeleteFunc(s.Away, func(a explain.AwayFromMesh) bool { return !namespaces.Has(a.Namespace) })
			return errors.Join(
				out.Print(cmd.OutOrStdout(), client.List{Value: s, Names: func() []string { return staleNames(s) }, Table: func(w io.Writer) error { return printStale(cmd, w, s) }}),
				noteIncomplete(cmd, &out, s.Others))
		},
	}
	plane.AddFlags(cmd)
	out.AddFlag(cmd)
	plane.AddLocalFlag(cmd)
	namespaces.AddFlags(cmd, &plane, "proxies")
	return cmd
}

// staleNames returns the proxies of a list, each once.
func staleNames(s *explain.Stale) (names []string) {
	for i := range s.Holders {
		names = append(names, s.Holders[i].Name+"."+s.Holders[i].Namespace)
	}
	for i := range s.Away {
		if s.Away[i].Endpoints == 0 {
			continue
		}
		names = append(names, s.Away[i].Name+"."+s.Away[i].Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func printStale(cmd *cobra.Command, w io.Writer, s *explain.Stale) error {
	style := terminal.StyleFor(w)
	if err := printHolders(cmd, w, style, s); err != nil {
		return err
	}
	for _, p := range s.Away {
		text := "no endpoint was removed since"
		if p.Endpoints > 0 {
			text = "if it runs, it still holds " + terminal.Count(p.Endpoints, "removed endpoint")
		}
		if _, err := fmt.Fprintf(w, "%s.%s: disconnected for %s; %s\n", p.Name, p.Namespace, age(s.Now, p.Since), text); err != nil {
			return err
		}
	}
	return printIncomplete(w, style, s.Others)
}

func printHolders(cmd *cobra.Command, w io.Writer, style terminal.Style, s *explain.Stale) error {
	if len(s.Holders) == 0 {
		text := style.Good("no connected proxy holds a removed endpoint")
		if isSilent(s.Others) {
			text = style.Warn("no known connected proxy holds a removed endpoint")
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	t := terminal.NewTable("PROXY", "ENDPOINT", "GONE FOR", "CLUSTER", "WHY")
	for i := range s.Holders {
		h := &s.Holders[i]
		p := &distribution.ProxySyncStatus{Name: h.Name, Namespace: h.Namespace, Reasons: h.Reasons, ControlPlane: h.ControlPlane}
		t.Row(proxyOf(p), h.Address, style.Bad(age(s.Now, h.Since)), h.Cluster, why(cmd, p, s.Now))
	}
	return t.Write(w)
}
