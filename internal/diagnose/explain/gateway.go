package explain

import (
	"net"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// enter makes a call to a router one that comes from outside. DNS leads every name to the router.
func (w *Why) enter(world *proxyWorld, call *simulate.Call) {
	_, port, err := net.SplitHostPort(call.To)
	if err != nil {
		return
	}
	call.Direct, call.From = true, net.JoinHostPort(caller.Elsewhere, "40000")
	call.To = net.JoinHostPort(caller.FirstIP(world.proxy), port)
	if l, err := world.Entry(*call); err == nil && l == "" {
		w.Notes = append(w.Notes, "the router listens only at "+strings.Join(world.Outbound(), ", ")+": use the port to which its Service leads")
	}
}

// gateways adds the Gateways that a router's listener is made from. If the call found routes, the routes
// must be made from them, too.
func (s *sourceList) gateways(w *proxyWorld, r *simulate.Result) {
	if w.proxy.Type != model.ProxyRouter || r.Listener == "" {
		return
	}
	routes := w.routedBy(r)
	for _, k := range w.madeFrom(resource.Listener, r.Listener, model.KindGateway, model.KindKubernetesGateway, model.KindListenerSet, model.KindIngress) {
		if routes == nil || routes.Has(k) {
			s.add(k, "listener "+r.Listener, "")
		}
	}
}
