package derive

import (
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveTelemetry finds what the scope's chains tell. Where that differs from before, every
// listener is derived again. It comes before all else: hosts tell of collectors.
func (s *proxyGroup) deriveTelemetry(r *index.Reader) {
	rules := s.telemetries(r)
	side := model.SideClient
	if s.Key.Inbound {
		side = model.SideServer
	}
	now := &ir.Telemetry{Server: s.Key.Inbound, TellsPeer: !s.Key.Inbound && s.TellsPeer(r.Mesh())}
	now.Metrics, now.Every = metricsOf(rules, r.Mesh(), side)
	var collectors []model.Host
	for _, l := range logsOf(rules, r.Mesh(), side) {
		if host, ok := resolveLog(r, &l); ok {
			collectors = appendHost(collectors, host)
			now.Logs = append(now.Logs, l.AccessLog)
		}
	}
	if t, provider := tracingOf(rules, s.Key.Tracing.Over(&r.Mesh().Telemetry), side); t != nil {
		if host, cluster, ok := collectorOf(r, provider); ok {
			collectors = appendHost(collectors, host)
			t.Host, t.Cluster = host, cluster
			now.Tracing = t
		}
	}
	from := r.Used.Since(0)
	s.replaceCollectors(collectors, from)
	same := from.Equal(s.observed) && reflect.DeepEqual(now, s.telemetry)
	s.observed = from
	if same {
		return
	}
	s.telemetry = now
	s.markTelling(r.Mesh())
}

func appendHost(list []model.Host, h model.Host) []model.Host {
	if h == "" || slices.Contains(list, h) {
		return list
	}
	return append(list, h)
}

// markTelling derives all listeners again.
func (s *proxyGroup) markTelling(mesh *model.Mesh) {
	if s.Key.Inbound {
		s.mark(unit{kind: unitInbound})
		return
	}
	s.markListeners()
	s.deriveCatchAll(mesh)
}

// replaceCollectors keeps the clusters of services that telemetry goes to, however egress
// is narrowed. An inbound scope's are in the outbound one: Telemetries are for both.
func (s *proxyGroup) replaceCollectors(now []model.Host, from *model.Origins) {
	if s.Key.Inbound {
		return
	}
	for _, h := range now {
		s.countRef(h, from, 1)
	}
	for _, h := range s.collectors {
		s.countRef(h, s.observed, -1)
	}
	s.collectors = now
}

// observe has a listener's chains tell what the scope's Telemetry says. Connections to the
// sidecar's own port, which are closed, are nobody's calls.
// It adds what the listener's chains are made from.
func (s *proxyGroup) observe(l *ir.Listener, from *model.OriginList) {
	for i := range l.Chains {
		s.observeChain(&l.Chains[i], from)
	}
	if l.Default != nil {
		s.observeChain(l.Default, from)
	}
}

func (s *proxyGroup) observeChain(c *ir.FilterChain, from *model.OriginList) {
	from.AddAll(c.Origins)
	if !strings.HasSuffix(c.Name, blackHoleSuffix) {
		from.AddAll(s.observed)
	}
	switch {
	case strings.HasSuffix(c.Name, blackHoleSuffix):
	case c.HTTP != nil: // a copy: what has been put out does not change
		http := *c.HTTP
		http.Telemetry, http.PeerTold, c.HTTP = s.telemetry, c.TLS != nil && c.TLS.IsMesh() && s.Key.Inbound, &http
		http.Uncounted = s.Key.Uncounted
	case c.TCP != nil:
		tcp := *c.TCP
		tcp.Telemetry, c.TCP = s.telemetry, &tcp
	}
}

// telemetries are those for the scope's workloads, each over those before.
func (s *proxyGroup) telemetries(r *index.Reader) []*model.Telemetry {
	out := model.EffectiveTelemetries(s.Key.Namespace, index.Policies[*model.Telemetry](r, model.KindTelemetry))
	for _, t := range out {
		r.Use(t)
	}
	return out
}

// collectorOf finds the cluster of a provider's service; not ok where there is no such
// service: Envoy would refuse, or wait for, what refers to it.
func collectorOf(r *index.Reader, p *model.Provider) (model.Host, string, bool) {
	svc := r.Service(p.Host)
	if svc == nil || p.Namespace != "" && svc.Namespace != p.Namespace {
		return "", "", false
	}
	if !slices.ContainsFunc(svc.Ports, func(port model.ServicePort) bool { return port.Number == p.Port }) {
		return "", "", false
	}
	return p.Host, ir.OutboundCluster(p.Port, "", p.Host), true
}

// allOfMesh tells whether all that routes lead to is of the mesh.
func (rt *routing) allOfMesh(routes []ir.Route) bool {
	for i := range routes {
		for _, b := range routes[i].Backends {
			if !rt.isOfMesh(b.Host) {
				return false
			}
		}
		for _, m := range routes[i].Mirrors {
			if !rt.isOfMesh(m.Host) {
				return false
			}
		}
	}
	return true
}

func (rt *routing) isOfMesh(h model.Host) bool {
	if h == "" {
		return false
	}
	svc := rt.Service(h)
	return svc != nil && !svc.External && svc.ExternalName == ""
}
