package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// versionFlags are the values of the flags of `moonsail version`.
type versionFlags struct {
	plane      client.ControlPlane
	out        terminal.Output
	clientOnly bool
	remote     bool // istioctl's
}

// NewVersionCommand returns `moonsail version`.
func NewVersionCommand() *cobra.Command {
	var f versionFlags
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, the control plane and the proxies",
		Long: `Print the version of this program, of each replica of the control plane, and of the Envoys that are
connected to it. Without a control plane on this machine or in the cluster, the command prints the
first alone.`,
		Example: `  # Print all versions
  moonsail version

  # Print the version of this program
  moonsail version --client

  # The same for programs
  moonsail version -o json`,
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	f.plane.AddFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().BoolVar(&f.clientOnly, "client", false, "print only the version of this program")
	cmd.Flags().BoolVar(&f.remote, "remote", true, "as istioctl: --remote=false is --client")
	cmd.Flags().BoolP("short", "s", true, "as istioctl: the versions without further details, as always")
	for _, name := range []string{"remote", "short"} {
		_ = cmd.Flags().MarkHidden(name) // the only error is a flag that does not exist
	}
	return cmd
}

// versions is the result of `moonsail version`. The fields of this program come first, as those of a replica do.
type versions struct {
	version.Info
	ControlPlanes []planeVersion `json:"controlPlanes,omitempty"`
	Proxies       []proxyVersion `json:"proxies,omitempty"`
	Disconnected  int            `json:"disconnected,omitempty"` // proxies that are not among Proxies, and may still run
	Absent        string         `json:"absent,omitempty"`       // why the versions of control planes are unknown
}

type planeVersion struct {
	Name string `json:"name"`
	version.Info
}

// proxyVersion counts the proxies of a version.
type proxyVersion struct {
	Envoy   string `json:"envoy"`
	Istio   string `json:"istio,omitempty"` // what the proxy's agent reports
	Proxies int    `json:"proxies"`
}

func (f *versionFlags) run(cmd *cobra.Command, _ []string) error {
	v := versions{Info: version.Get()}
	if !f.clientOnly && f.remote {
		if err := f.ask(cmd.Context(), &v); err != nil {
			if f.plane.IsChosen() {
				return err
			}
			v.Absent = err.Error()
		}
	}
	return f.out.Print(cmd.OutOrStdout(), v, func(w io.Writer) error { return printVersions(w, &v, f.clientOnly || !f.remote) })
}

func (f *versionFlags) ask(ctx context.Context, v *versions) error {
	replicas, err := f.plane.Replicas(ctx)
	if err != nil {
		return err
	}
	planes, lists := make([]planeVersion, len(replicas)), make([]debug.ProxyList, len(replicas))
	err = f.plane.Each(ctx, func(i int, r *client.Replica) error {
		planes[i].Name = r.Name
		if err := r.Get(ctx, "/version", &planes[i].Info); err != nil {
			return err
		}
		return r.Get(ctx, "/debug/proxies?local", &lists[i])
	})
	if err != nil {
		return err
	}
	v.ControlPlanes = slices.DeleteFunc(planes, func(p planeVersion) bool { return p.Version == "" })
	count := map[proxyVersion]int{}
	for i := range lists {
		for j := range lists[i].Proxies {
			p := &lists[i].Proxies[j]
			count[proxyVersion{Envoy: p.Version, Istio: p.IstioVersion}]++
		}
	}
	var gone debug.ProxyList
	if f.plane.Get(ctx, "/debug/proxies?disconnected", &gone) == nil {
		v.Disconnected = len(gone.Disconnected)
	}
	for one, n := range count {
		one.Proxies = n
		v.Proxies = append(v.Proxies, one)
	}
	slices.SortFunc(v.Proxies, func(a, b proxyVersion) int {
		return cmp.Or(strings.Compare(a.Envoy, b.Envoy), strings.Compare(a.Istio, b.Istio))
	})
	return nil
}

func printVersions(w io.Writer, v *versions, clientOnly bool) error {
	if clientOnly {
		_, err := fmt.Fprintf(w, "moonsail %s\n", v.Info)
		return err
	}
	fmt.Fprintf(w, "client version:         moonsail %s\n", v.Info)
	if v.Absent != "" {
		_, err := fmt.Fprintf(w, "control plane version:  none found: %s\n", v.Absent)
		return err
	}
	byVersion := map[string][]string{}
	for i := range v.ControlPlanes {
		p := &v.ControlPlanes[i]
		byVersion[p.Info.String()] = append(byVersion[p.Info.String()], p.Name)
	}
	for _, text := range slices.Sorted(maps.Keys(byVersion)) {
		fmt.Fprintf(w, "control plane version:  %s (%s)\n", text, strings.Join(byVersion[text], ", "))
	}
	gone := ""
	if n := v.Disconnected; n > 0 {
		gone = fmt.Sprintf("; %d disconnected (see 'moonsail proxies --status disconnected')", n)
	}
	if len(v.Proxies) == 0 {
		_, err := fmt.Fprintf(w, "data plane version:     no proxies are connected%s\n", gone)
		return err
	}
	var parts []string
	for i := range v.Proxies {
		p := &v.Proxies[i]
		text := "Envoy " + cmp.Or(p.Envoy, "of unknown version")
		if p.Istio != "" {
			text += ", Istio " + p.Istio
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", text, terminal.Count(p.Proxies, "proxy")))
	}
	_, err := fmt.Fprintf(w, "data plane version:     %s%s\n", strings.Join(parts, "; "), gone)
	return err
}
