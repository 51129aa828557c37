package inspect

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// NewProxyStatusCommand returns `moonsail experimental proxy-status`: proxies by istioctl's name.
func NewProxyStatusCommand() *cobra.Command {
	cmd := newProxiesCommand()
	cmd.Use, cmd.Aliases = "proxy-status [PROXY]", []string{"ps"}
	return cmd
}

// istioctlTypes are the columns of types of `istioctl proxy-status`.
var istioctlTypes = []string{"CDS", "LDS", "EDS", "RDS", "ECDS"}

// istioctlTable returns the list in the columns of `istioctl proxy-status`. asked is the control plane that answers.
func istioctlTable(style terminal.Style, list *debug.ProxyList, asked string) *proxyTable {
	t := &proxyTable{headings: append(append([]string{"NAME", "CLUSTER"}, istioctlTypes...), "ISTIOD", "VERSION")}
	for i := range list.Proxies {
		p := &list.Proxies[i]
		row := proxyRow{key: p.ID, state: stateOf(p), cells: []string{p.Name + "." + p.Namespace, cmp.Or(p.Cluster, "Kubernetes")}}
		for _, c := range istioctlTypes {
			row.cells = append(row.cells, istioctlState(style, p, c))
		}
		row.cells = append(row.cells, cmp.Or(p.ControlPlane, asked), terminal.OrDash(cmp.Or(p.IstioVersion, p.Version)))
		t.rows = append(t.rows, row)
	}
	return t
}

// The words of istioctl, from the best to the worst.
var istioctlStates = []string{"IGNORED", "SYNCED", "NOT SENT", "STALE", "ERROR"}

// istioctlState returns the worst state of the types of a column.
func istioctlState(style terminal.Style, p *server.ProxyState, column string) string {
	worst := 0
	for i := range p.Types {
		t := &p.Types[i]
		if (t.Type == column || t.Type == "VHDS" && column == "RDS") && t.InUse() {
			worst = max(worst, istioctlRank(t))
		}
	}
	text := istioctlStates[worst]
	switch worst {
	case 0:
		return style.Dim(text)
	case 1:
		return style.Good(text)
	case len(istioctlStates) - 1:
		return style.Bad(text)
	}
	return style.Warn(text)
}

func istioctlRank(t *server.TypeState) int {
	switch {
	case len(t.Held) > 0:
		return 4
	case !t.InFlightSince.IsZero(), t.Waiting != "":
		return 3
	case t.Sent == 0:
		return 2
	}
	return 1
}
