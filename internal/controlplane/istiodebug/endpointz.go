package istiodebug

import (
	"cmp"
	"net/http"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// shards are istiod's EndpointShards: the endpoints of a host in a namespace, by registry and cluster.
type shards struct {
	Shards          map[string][]endpoint
	ServiceAccounts map[string]struct{}
}

// endpoint is a part of istiod's IstioEndpoint.
type endpoint struct {
	Labels          map[string]string
	Addresses       []string
	ServicePortName string
	ServiceAccount  string
	Network         string
	Locality        map[string]string
	EndpointPort    uint32
	LbWeight        uint32
	TLSMode         string
	Namespace       string
	WorkloadName    string
	HostName        string
	HealthStatus    int // 1: healthy, 2: unhealthy, 3: draining
	NodeName        string
}

// Numbers of istiod's HealthStatus.
const (
	healthy   = 1
	unhealthy = 2
	draining  = 3
)

func (p *Pages) endpointShardz(w http.ResponseWriter, _ *http.Request) {
	out := map[model.Host]map[string]*shards{}
	x := newEndpoints(p.Snapshot())
	for _, s := range services(x.snap) {
		list := x.of(s)
		if len(list) == 0 {
			continue
		}
		if out[s.Hostname] == nil {
			out[s.Hostname] = map[string]*shards{}
		}
		shard := &shards{Shards: map[string][]endpoint{registryOf(s) + "/" + defaultCluster: list}, ServiceAccounts: map[string]struct{}{}}
		for i := range list {
			if list[i].ServiceAccount != "" {
				shard.ServiceAccounts[list[i].ServiceAccount] = struct{}{}
			}
		}
		out[s.Hostname][s.Namespace] = shard
	}
	reply(w, out)
}

// endpoints finds the endpoints of services in a snapshot.
type endpoints struct {
	snap   *store.Snapshot
	slices map[model.Key][]*model.EndpointSlice // by Service
	byNS   map[string][]*model.Workload         // Pods and WorkloadEntries
	pods   map[podAddress]*model.Workload       // by address
}

// podAddress is an address of a namespace's Pods.
type podAddress struct{ namespace, address string }

func newEndpoints(snap *store.Snapshot) *endpoints {
	x := &endpoints{snap: snap, slices: map[model.Key][]*model.EndpointSlice{}, byNS: map[string][]*model.Workload{}, pods: map[podAddress]*model.Workload{}}
	for o := range snap.All(model.KindEndpointSlice) {
		s := o.(*model.EndpointSlice)
		key := model.Key{Kind: model.KindService, Namespace: s.Namespace, Name: s.Service}
		x.slices[key] = append(x.slices[key], s)
	}
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range snap.All(kind) {
			if w := o.(*model.Workload); kind == model.KindPod || w.Ready { // istiod leaves out unhealthy WorkloadEntries
				x.byNS[w.Namespace] = append(x.byNS[w.Namespace], w)
				x.addPod(w)
			}
		}
	}
	return x
}

// addPod adds a Pod by its addresses. If several have one, the first by name counts.
func (x *endpoints) addPod(w *model.Workload) {
	if w.Kind != model.KindPod || !w.OwnsAddress() {
		return
	}
	for _, a := range w.Addresses {
		at := podAddress{w.Namespace, a}
		if first := x.pods[at]; first == nil || w.Name < first.Name {
			x.pods[at] = w
		}
	}
}

// podOf returns the Pod that a slice's member names or, if it names none, the Pod at its address; nil: unknown or none.
func (x *endpoints) podOf(s *model.EndpointSlice, m *model.SliceEndpoint) *model.Workload {
	if m.Pod == "" {
		return x.pods[podAddress{s.Namespace, m.Addresses[0]}]
	}
	pod, _ := x.snap.Get(model.Key{Kind: model.KindPod, Namespace: s.Namespace, Name: m.Pod}).(*model.Workload)
	return pod
}

func (x *endpoints) of(s *model.Service) (out []endpoint) {
	list := x.slices[s.Key]
	for _, slice := range list {
		out = append(out, x.ofSlice(slice)...)
	}
	for i := range s.Inline {
		e := &s.Inline[i]
		for _, port := range s.Ports {
			out = append(out, endpoint{
				Labels: e.Labels, Addresses: []string{e.Address}, ServicePortName: port.Name, ServiceAccount: e.ServiceAccount, Network: e.Network,
				Locality: localityOf(e.Locality), EndpointPort: cmp.Or(e.Ports[port.Name], port.TargetPort, port.Number), LbWeight: max(1, e.Weight),
				TLSMode: tlsMode(e.Sidecar), Namespace: s.Namespace, WorkloadName: e.Workload, HealthStatus: healthy, NodeName: e.Node,
			})
		}
	}
	if len(s.Selector) == 0 {
		return out
	}
	for _, w := range x.byNS[s.Namespace] {
		// Pods of a Service are in its slices.
		if (len(list) == 0 || w.Kind == model.KindWorkloadEntry) && model.SelectorMatches(s.Selector, w.Labels) && w.Address() != "" {
			for _, port := range s.Ports {
				e := ofWorkload(w)
				e.ServicePortName, e.EndpointPort = port.Name, cmp.Or(w.NamedPorts[port.TargetName], w.NamedPorts[port.Name], port.TargetPort, port.Number)
				out = append(out, e)
			}
		}
	}
	return out
}

func (x *endpoints) ofSlice(s *model.EndpointSlice) (out []endpoint) {
	for i := range s.Members {
		m := &s.Members[i]
		if len(m.Addresses) == 0 {
			continue
		}
		var e endpoint
		if pod := x.podOf(s, m); pod != nil {
			e = ofWorkload(pod)
		}
		e.Addresses, e.Namespace, e.NodeName, e.HealthStatus = m.Addresses[:1], s.Namespace, m.Node, unhealthy
		switch {
		case m.Ready:
			e.HealthStatus = healthy
		case m.Terminating && m.Serving:
			e.HealthStatus = draining
		}
		for _, port := range s.Ports {
			e.ServicePortName, e.EndpointPort = port.Name, port.Number
			out = append(out, e)
		}
	}
	return out
}

func ofWorkload(w *model.Workload) endpoint {
	e := endpoint{
		Labels: w.Labels, Addresses: []string{w.Address()}, ServiceAccount: w.Namespace + "/" + w.Account(), Network: w.Network, Locality: localityOf(w.Locality),
		LbWeight: max(1, w.Weight), TLSMode: tlsMode(w.SpeaksMTLS()), Namespace: w.Namespace, WorkloadName: cmp.Or(w.Owner, w.Name), HostName: w.Name,
		HealthStatus: healthy, NodeName: w.Node,
	}
	if w.Kind == model.KindPod && !w.Ready {
		e.HealthStatus = unhealthy
	}
	return e
}

func localityOf(l model.Locality) map[string]string {
	return map[string]string{"Label": l.String(), "ClusterID": defaultCluster}
}

func tlsMode(sidecar bool) string {
	if sidecar {
		return "istio"
	}
	return "disabled"
}

// instancesz lists the services of each proxy, or of one.
func (p *Pages) instancesz(w http.ResponseWriter, r *http.Request) {
	var proxies []*model.Proxy
	if id := proxyID(r); id != "" {
		proxy, _, ok := p.Resources.Intended(id)
		if !ok {
			answerNotConnected(w)
			return
		}
		proxies = append(proxies, proxy)
	} else {
		for _, state := range p.Proxies() {
			if state.Proxy != nil {
				proxies = append(proxies, state.Proxy)
			}
		}
	}
	at := servicesByAddress(p.Snapshot())
	out := map[string][]Service{}
	for _, proxy := range proxies {
		list := []Service{}
		for _, ip := range proxy.IPs {
			list = append(list, at[ip]...)
		}
		out[proxy.String()] = list
	}
	reply(w, out)
}

// servicesByAddress returns the services that have an endpoint at each address.
func servicesByAddress(snap *store.Snapshot) map[string][]Service {
	x, out := newEndpoints(snap), map[string][]Service{}
	for _, s := range services(snap) {
		seen := map[string]bool{}
		for _, e := range x.of(s) {
			if a := e.Addresses[0]; !seen[a] {
				seen[a] = true
				out[a] = append(out[a], istioService(s))
			}
		}
	}
	return out
}
