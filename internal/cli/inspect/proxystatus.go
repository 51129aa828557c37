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

// istioctlTable returns the list in the columns of `istioctl proxy-status`. asked is the control plane that answers, and chosen
// reports whether --status chooses a proxy.
func istioctlTable(style terminal.Style, list *debug.ProxyList, asked string, chosen func(*server.ProxyState) bool) *proxyTable {
	t := &proxyTable{headings: append(append([]string{"NAME", "CLUSTER"}, istioctlTypes...), "ISTIOD", "VERSION"), widest: map[string]string{}}
	for _, c := range istioctlTypes {
		t.widest[c] = istioctlStates[server.TypeNotSent]
	}
	for i := range list.Proxies {
		p := &list.Proxies[i]
		row := proxyRow{key: p.ID, state: stateOf(p), hidden: !chosen(p), cells: []string{p.Name + "." + p.Namespace, cmp.Or(p.Cluster, "Kubernetes")}}
		for _, c := range istioctlTypes {
			row.cells = append(row.cells, istioctlState(style, p, c))
		}
		row.cells = append(row.cells, cmp.Or(p.ControlPlane, asked), terminal.OrDash(cmp.Or(p.IstioVersion, p.Version)))
		t.rows = append(t.rows, row)
	}
	return t
}

// istioctlStates are the words of istioctl.
var istioctlStates = [...]string{
	server.TypeNotInUse: "IGNORED", server.TypeSynced: "SYNCED", server.TypeNotSent: "NOT SENT",
	server.TypeWaiting: "STALE", server.TypeInFlight: "STALE", server.TypeRefused: "ERROR", server.TypeLacks: "STALE",
}

// istioctlState returns the worst state of the types of a column.
func istioctlState(style terminal.Style, p *server.ProxyState, column string) string {
	worst := server.TypeNotInUse
	for i := range p.Types {
		if t := &p.Types[i]; t.Type == column || t.Type == "VHDS" && column == "RDS" {
			worst = max(worst, t.Progress())
		}
	}
	text := istioctlStates[worst]
	switch worst {
	case server.TypeNotInUse:
		return style.Dim(text)
	case server.TypeSynced:
		return style.Good(text)
	case server.TypeRefused:
		return style.Bad(text)
	default:
		return style.Warn(text)
	}
}
