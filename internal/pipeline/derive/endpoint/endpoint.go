// Package endpoint chooses the endpoints of a cluster for the clients of a proxy group, and groups them by locality and
// priority, as Istio does. It is pure. Memo lets groups with the same result share one value, and so one encoding.
//
// Start reading at Localities.
package endpoint

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Plan is the choice of endpoints for one cluster.
type Plan struct {
	Cluster      string
	Port         *model.ServicePort // of the service
	Labels       map[string]string  // of the subset
	LoadBalancer *model.LoadBalancer
	Distribution model.Distribution // of the service
	Mesh         *model.LocalityLB  // of the mesh
	Outlier      bool               // failing endpoints are detected
	Single       bool               // the cluster has one endpoint, the first
	From         *model.Origins     // beside the origins of the endpoints
}

// Memo lets proxy groups that agree on a cluster's endpoints share one value, and so one encoding. It lives for one batch.
type Memo struct {
	mu     sync.Mutex // guards values: groups are derived in parallel
	values map[memoKey]*ir.Endpoints
}

type memoKey struct {
	set          *index.EndpointSet
	cluster      string
	subset       string
	locality     model.Locality
	labels       string // of the client, if locality settings compare them
	node         string // of the client, if it is compared
	policy       *model.LoadBalancer
	distribution model.Distribution
	outlier      bool
	statePlain   bool
	from         *model.Origins
	calls        string // which clients have these endpoints, if some are on the clients' own host
}

// NewMemo makes an empty memo.
func NewMemo() *Memo { return &Memo{values: map[memoKey]*ir.Endpoints{}} }

// Get returns the EDS resource of a cluster.
func (m *Memo) Get(c *index.Client, svc *model.Service, set *index.EndpointSet, plan Plan) *ir.Endpoints {
	k := memoKey{
		set: set, cluster: plan.Cluster, subset: index.CanonicalLabels(plan.Labels),
		locality: c.Key.Locality, labels: c.Key.Labels,
		policy: plan.LoadBalancer, distribution: plan.Distribution, outlier: plan.Outlier, statePlain: statesPlain(c, svc), from: plan.From,
	}
	if set, _, _ := plan.locality(); svc.NodeLocal || slices.Contains(set.FailoverPriority, model.LabelNode) {
		k.node = c.Key.Node
	}
	if set.HasOwnHost() {
		k.calls = fmt.Sprintf("%t %t", c.Trusts(svc), c.Key.Loopback)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.values[k]
	if v == nil {
		v = &ir.Endpoints{Cluster: plan.Cluster, Host: svc.Hostname, MarksPlaintext: k.statePlain, Localities: Localities(c, svc, set.Get(), plan)}
		v.Origins = plan.From.Union(set.Origins(plan.Port))
		m.values[k] = v
	}
	return v
}

// statesPlain reports whether a service's clusters may use mutual TLS by default.
func statesPlain(c *index.Client, svc *model.Service) bool { return c.Key.Identity && !svc.External }

// Localities chooses a cluster's endpoints among all of its service, and groups them by locality.
func Localities(c *index.Client, svc *model.Service, all []*model.Endpoint, plan Plan) []ir.LocalityEndpoints {
	chosen := choose(c, svc, all, plan)
	if plan.Single && len(chosen) > 1 {
		chosen = chosen[:1]
	}
	groups := group(chosen, priorities(c, chosen, plan))
	out := make([]ir.LocalityEndpoints, 0, len(groups))
	for g, list := range groups {
		l := ir.LocalityEndpoints{Locality: g.locality, Priority: g.priority, Endpoints: make([]ir.Endpoint, len(list.endpoints))}
		for i, e := range list.endpoints {
			port, _ := index.EndpointPort(svc, e, plan.Port)
			l.Endpoints[i] = endpointOf(e, port)
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b ir.LocalityEndpoints) int {
		if a.Priority != b.Priority {
			return int(a.Priority) - int(b.Priority)
		}
		return strings.Compare(a.Locality.String(), b.Locality.String())
	})
	return distribute(c.Key.Locality, out, plan)
}

// groupKey identifies endpoints that Envoy receives together.
type groupKey struct {
	locality model.Locality
	priority uint32
}

type endpointGroup struct{ endpoints []*model.Endpoint }

// group keeps the order of endpoints in each group.
func group(list []*model.Endpoint, priority []uint32) map[groupKey]*endpointGroup {
	out := map[groupKey]*endpointGroup{}
	var last groupKey // of the previous endpoint: neighbours mostly share a group
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

// choose keeps the endpoints of the subset that have the port, that the clients may call, and that are on the clients' node if
// the service requires it. Draining endpoints serve only if there are no others.
func choose(c *index.Client, svc *model.Service, all []*model.Endpoint, plan Plan) []*model.Endpoint {
	healthy := make([]*model.Endpoint, 0, len(all))
	var draining []*model.Endpoint
	cluster := c.Labels[model.LabelCluster]
	for _, e := range all {
		if !e.HasLabels(plan.Labels, cluster) || svc.NodeLocal && e.Node != c.Key.Node {
			continue
		}
		if port, ok := index.EndpointPort(svc, e, plan.Port); !ok || !c.MayCall(svc, e.Address, port) {
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

func endpointOf(e *model.Endpoint, port uint32) ir.Endpoint {
	return ir.Endpoint{
		Address: e.Address, Port: port, Weight: max(e.Weight, 1),
		Workload: e.Workload, Namespace: e.Namespace, MTLS: e.SpeaksMTLS(port),
		Canonical: callstats.CanonicalService(e.Labels, e.Workload), Revision: callstats.CanonicalRevision(e.Labels),
		App: e.Labels["app"], Version: e.Labels["version"],
	}
}
