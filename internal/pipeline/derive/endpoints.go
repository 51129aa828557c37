package derive

import (
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveEndpoints makes the EDS resources of one host.
func (s *proxyGroup) deriveEndpoints(r *index.Reader, h model.Host, memo *endpointMemo) {
	for _, cluster := range s.served[h] {
		s.out.Endpoints[cluster] = nil
	}
	delete(s.served, h)
	host := s.hosts[h]
	if host == nil || len(host.eds) == 0 {
		return
	}
	set := r.Endpoints(host.service)
	for _, plan := range host.eds {
		s.out.Endpoints[plan.cluster] = memo.get(s, host.service, set, plan)
		s.served[h] = append(s.served[h], plan.cluster)
	}
}

// endpointMemo lets scopes that agree on a cluster's endpoints share one view, and so one
// encoding. It lives for one batch.
type endpointMemo struct {
	mu    sync.Mutex // guards views: scopes are derived side by side
	views map[memoKey]*ir.Endpoints
}

type memoKey struct {
	set      *index.EndpointSet
	cluster  string
	subset   string
	locality model.Locality
	labels   string // of the client, where locality settings compare them
	node     string // of the client, where it is compared
	policy   *model.LoadBalancer
	near     model.Distribution
	outlier  bool
	plain    bool
	from     *model.Origins
}

func newEndpointMemo() *endpointMemo { return &endpointMemo{views: map[memoKey]*ir.Endpoints{}} }

func (m *endpointMemo) get(s *proxyGroup, svc *model.Service, set *index.EndpointSet, plan edsPlan) *ir.Endpoints {
	k := memoKey{
		set: set, cluster: plan.cluster, subset: index.CanonicalLabels(plan.labels),
		locality: s.Key.Locality, labels: s.Key.Labels,
		policy: plan.lb, near: plan.near, outlier: plan.outlier, plain: s.tellsPlain(svc), from: plan.from,
	}
	if set, _, _ := plan.locality(); slices.Contains(set.FailoverPriority, model.LabelNode) {
		k.node = s.Key.Node
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.views[k]
	if v == nil {
		v = &ir.Endpoints{Cluster: plan.cluster, TellPlain: k.plain, Localities: s.localities(svc, set.Get(), plan)}
		v.Origins = plan.from.Union(set.Origins())
		m.views[k] = v
	}
	return v
}

// tellsPlain tells whether a service's clusters may get mutual TLS that nobody has asked for.
func (s *proxyGroup) tellsPlain(svc *model.Service) bool { return s.Key.Identity && !svc.External }

// localities chooses a cluster's endpoints and groups them by locality.
func (s *proxyGroup) localities(svc *model.Service, all []*model.Endpoint, plan edsPlan) []ir.LocalityEndpoints {
	chosen := choose(svc, all, plan)
	groups := group(chosen, s.priorities(chosen, plan))
	out := make([]ir.LocalityEndpoints, 0, len(groups))
	for g, list := range groups {
		l := ir.LocalityEndpoints{Locality: g.locality, Priority: g.priority, Endpoints: make([]ir.Endpoint, len(list.endpoints))}
		for i, e := range list.endpoints {
			port, _ := index.EndpointPort(svc, e, plan.port)
			l.Endpoints[i] = endpointView(e, port)
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b ir.LocalityEndpoints) int {
		if a.Priority != b.Priority {
			return int(a.Priority) - int(b.Priority)
		}
		return strings.Compare(a.Locality.String(), b.Locality.String())
	})
	return s.distribute(out, plan)
}

// groupKey tells the groups of endpoints apart that Envoy is told of together.
type groupKey struct {
	locality model.Locality
	priority uint32
}

type endpointGroup struct{ endpoints []*model.Endpoint }

// group keeps the order of endpoints within each group.
func group(list []*model.Endpoint, priority []uint32) map[groupKey]*endpointGroup {
	out := map[groupKey]*endpointGroup{}
	var last groupKey // that of the endpoint before, which neighbours mostly share
	var to *endpointGroup
	for i, e := range list {
		if k := (groupKey{e.Locality, priority[i]}); to == nil || k != last {
			if last, to = k, out[k]; to == nil {
				to = &endpointGroup{}
				out[k] = to
			}
		}
		to.endpoints = append(to.endpoints, e)
	}
	return out
}

// choose keeps the subset's endpoints that have the port. Draining ones serve only where
// nothing else does.
func choose(svc *model.Service, all []*model.Endpoint, plan edsPlan) []*model.Endpoint {
	healthy := make([]*model.Endpoint, 0, len(all))
	var draining []*model.Endpoint
	for _, e := range all {
		if !model.SelectorMatches(plan.labels, e.Labels) {
			continue
		}
		if _, ok := index.EndpointPort(svc, e, plan.port); !ok {
			continue
		}
		if e.Health == model.Draining {
			draining = append(draining, e)
		} else {
			healthy = append(healthy, e)
		}
	}
	if len(healthy) > 0 {
		return healthy
	}
	return draining
}

func endpointView(e *model.Endpoint, port uint32) ir.Endpoint {
	return ir.Endpoint{
		Address: e.Address, Port: port, Weight: max(e.Weight, 1), Health: model.Healthy,
		Workload: e.Workload, Namespace: e.Namespace, MTLS: e.SpeaksMTLS(port),
		Canonical: canonicalName(e), Revision: canonicalRevision(e.Labels),
		App: e.Labels["app"], Version: e.Labels["version"],
	}
}

// canonicalName and canonicalRevision are Istio's: what telemetry calls a workload's
// service and version.
func canonicalName(e *model.Endpoint) string {
	for _, k := range []string{"service.istio.io/canonical-name", "app.kubernetes.io/name", "app"} {
		if v := e.Labels[k]; v != "" {
			return v
		}
	}
	return e.Workload
}

func canonicalRevision(labels map[string]string) string {
	for _, k := range []string{"service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"} {
		if v := labels[k]; v != "" {
			return v
		}
	}
	return ""
}
