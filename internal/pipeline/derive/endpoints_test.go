package derive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// drainingMesh is a deriver with a service of two Pods in a slice; named: the slice names the Pods.
func drainingMesh(named bool) *Deriver {
	d := New(model.DefaultMesh(), 1)
	s := &model.Service{
		Meta: model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}}, Hostname: "web.shop.svc.cluster.local",
		Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Resolution: model.ResolutionStatic,
	}
	slice := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web-1"}},
		Service: "web", Ports: []model.SlicePort{{Name: "http", Number: 8080}},
		Members: []model.SliceEndpoint{
			{Addresses: []string{"10.1.0.1"}, Ready: true, Pod: "web-a"}, {Addresses: []string{"10.1.0.2"}, Ready: true, Pod: "web-b"},
		},
	}
	if !named {
		slice.Members[0].Pod, slice.Members[1].Pod = "", ""
	}
	d.Apply([]store.Change{{Key: s.Key, New: s}, {Key: slice.Key, New: slice}})
	return d
}

func drainNotice(pod, address string) *model.DrainNotice {
	return noticeOf("shop", pod, address)
}

func noticeOf(ns, pod, address string) *model.DrainNotice {
	return &model.DrainNotice{Meta: model.Meta{Key: model.Key{Kind: model.KindDrainNotice, Namespace: ns, Name: pod}}, Addresses: []string{address}}
}

// callable are the addresses of endpoints that proxies call.
func callable(d *Deriver, k GroupKey) []string {
	d.Close(k)
	var out []string
	for _, l := range d.Open(k).Endpoints["outbound|80||web.shop.svc.cluster.local"].Localities {
		for _, e := range l.Endpoints {
			out = append(out, e.Address)
		}
	}
	return out
}

func TestDrainNotice(t *testing.T) {
	both := []string{"10.1.0.1", "10.1.0.2"}
	for name, tc := range map[string]struct {
		named bool
		leave []*model.DrainNotice
		want  []string
	}{
		"no notice":                      {true, nil, both},
		"its endpoint is not called":     {true, []*model.DrainNotice{drainNotice("web-a", "10.1.0.1")}, []string{"10.1.0.2"}},
		"slices without Pods":            {false, []*model.DrainNotice{drainNotice("web-a", "10.1.0.1")}, []string{"10.1.0.2"}},
		"another Pod has the address":    {true, []*model.DrainNotice{drainNotice("old", "10.1.0.1")}, both},
		"another namespace":              {true, []*model.DrainNotice{noticeOf("evil", "web-a", "10.1.0.1")}, both},
		"another namespace, no Pods":     {false, []*model.DrainNotice{noticeOf("evil", "web-a", "10.1.0.1")}, both},
		"unknown address":                {true, []*model.DrainNotice{drainNotice("web-a", "10.9.9.9")}, both},
		"the last ones are still called": {true, []*model.DrainNotice{drainNotice("web-a", "10.1.0.1"), drainNotice("web-b", "10.1.0.2")}, both},
	} {
		t.Run(name, func(t *testing.T) {
			d := drainingMesh(tc.named)
			k, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "client", IPs: []string{"10.1.0.9"}})
			d.Open(k)
			for _, l := range tc.leave {
				d.Apply([]store.Change{{Key: l.Key, New: l}})
			}
			require.Equal(t, tc.want, callable(d, k))
			for _, l := range tc.leave {
				d.Apply([]store.Change{{Key: l.Key, Old: l}})
			}
			require.Equal(t, both, callable(d, k), "the notice ended")
		})
	}
}

func TestHostsAt(t *testing.T) {
	d := drainingMesh(true)
	require.Equal(t, []model.Host{"web.shop.svc.cluster.local"}, d.Index().HostsAt("10.1.0.1", "shop"))
	require.True(t, d.Index().Lists("10.1.0.2"))
	require.Empty(t, d.Index().HostsAt("10.9.9.9", "shop"))
	require.Empty(t, d.Index().HostsAt("10.1.0.1", "evil"))
	require.False(t, d.Index().Lists("10.9.9.9"))
}

// headlessChurn adds and removes Pods of a headless service, and collects what callers are sent.
type headlessChurn struct {
	d     *Deriver
	st    *store.Store
	key   GroupKey
	ports []model.SlicePort
	had   *Delta // what callers were sent in the beginning
}

const headlessCluster = "outbound|5000||db.shop.svc.cluster.local"

func newHeadless(t *testing.T, protocol model.Protocol) *headlessChurn {
	t.Helper()
	h := &headlessChurn{d: New(model.DefaultMesh(), 1), st: store.New(), ports: []model.SlicePort{{Name: "port", Number: 5000}}}
	h.apply(serviceOf("db", "1", func(s *model.Service) {
		s.Headless, s.Addresses = true, nil
		s.Ports = []model.ServicePort{{Name: "port", Number: 5000, Protocol: protocol}}
	}))
	h.pods("1", "10.2.0.1", "10.2.0.2")
	h.key, _ = h.d.Index().Keys(&model.Proxy{
		Type: model.ProxySidecar, Namespace: "shop", Name: "client", IPs: []string{"10.9.0.1"}, DNSDomain: "shop.svc.cluster.local",
		Interception: model.InterceptRedirect,
	})
	h.had = h.d.Open(h.key)
	return h
}

func (h *headlessChurn) apply(o model.Object) Update {
	_, changes := h.st.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	return h.d.Apply(changes)
}

// pods has the service have Pods at these addresses; it gives what callers are sent.
func (h *headlessChurn) pods(version string, addresses ...string) *Delta {
	var members []model.SliceEndpoint
	for _, a := range addresses {
		members = append(members, model.SliceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
	}
	s := sliceOf(version, members...)
	s.Ports = h.ports
	return h.apply(s).Deltas[h.key]
}

// TestHeadlessRequests checks that requests keep their original destination, so that changes of Pods send nothing to callers.
func TestHeadlessRequests(t *testing.T) {
	h := newHeadless(t, model.ProtocolHTTP)
	require.Equal(t, ir.DiscoverOriginalDst, h.had.Clusters[headlessCluster].Discovery)
	require.Nil(t, h.pods("2", "10.2.0.1", "10.2.0.3"))
	require.Nil(t, h.pods("3"))
	require.Nil(t, h.pods("4", "10.2.0.4"))
}

var bytesOrEither = []model.Protocol{model.ProtocolTCP, model.ProtocolAuto}

// TestHeadlessBytes checks that a headless service of TCP, or of an unknown protocol, has a listener for each Pod, and that
// changes of Pods add or remove only these.
func TestHeadlessBytes(t *testing.T) {
	for _, protocol := range bytesOrEither {
		h := newHeadless(t, protocol)
		h.requireListeners(t, h.pods("2", "10.2.0.2", "10.2.0.3"), map[string]bool{"10.2.0.1_5000": false, "10.2.0.3_5000": true})
		h.requireListeners(t, h.pods("3", "10.2.0.3"), map[string]bool{"10.2.0.2_5000": false})
		h.requireListeners(t, h.pods("4", "10.2.0.3", "10.2.0.4"), map[string]bool{"10.2.0.4_5000": true})
	}
}

// TestHeadlessReadiness checks that a Pod has its listener for its whole life, ready or not: connections end with their
// listener.
func TestHeadlessReadiness(t *testing.T) {
	for _, protocol := range bytesOrEither {
		h := newHeadless(t, protocol)
		h.requireListeners(t, h.pod("2", model.SliceEndpoint{}), map[string]bool{"10.2.0.3_5000": true})
		for i, state := range []model.SliceEndpoint{{Ready: true, Serving: true}, {}, {Ready: true, Serving: true}, {Serving: true, Terminating: true}, {Terminating: true}} {
			h.requireListeners(t, h.pod(fmt.Sprint(i+3), state), map[string]bool{})
		}
		h.requireListeners(t, h.pods("9", "10.2.0.1", "10.2.0.2"), map[string]bool{"10.2.0.3_5000": false})
	}
}

// pod has a third Pod in some state; it gives what callers are sent.
func (h *headlessChurn) pod(version string, third model.SliceEndpoint) *Delta {
	third.Addresses = []string{"10.2.0.3"}
	s := sliceOf(version, third)
	for _, a := range []string{"10.2.0.1", "10.2.0.2"} {
		s.Members = append(s.Members, model.SliceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
	}
	s.Ports = h.ports
	return h.apply(s).Deltas[h.key]
}

// requireListeners checks which listeners come (true) or go, and that nothing else is another than before.
func (h *headlessChurn) requireListeners(t *testing.T, delta *Delta, want map[string]bool) {
	t.Helper()
	got := map[string]bool{}
	for name, l := range delta.Listeners {
		got[name] = l != nil
	}
	require.Equal(t, want, got)
	require.Equal(t, len(delta.Listeners)+len(delta.Clusters)+len(delta.RouteConfigs)+len(delta.VirtualHosts), delta.Len(), "%+v", delta)
	requireAsBefore(t, h.had.Clusters, delta.Clusters)
	requireAsBefore(t, h.had.RouteConfigs, delta.RouteConfigs)
	requireAsBefore(t, h.had.VirtualHosts, delta.VirtualHosts)
}

// requireAsBefore: what is derived with the Pods, and no other than before, has the same bytes, and is not sent.
func requireAsBefore[V any](t *testing.T, had, now map[string]*V) {
	t.Helper()
	for name, v := range now {
		require.Equal(t, had[name], v, name)
	}
}

// TestPodsComeAndGo follows an endpoint through the life of its Pod, which arrives after the slice that names it and goes
// before it.
func TestPodsComeAndGo(t *testing.T) {
	st, d := store.New(), New(model.DefaultMesh(), 1)
	held := newDelta()
	put := func(events ...store.Event) {
		_, changes := st.Apply(events)
		for _, delta := range d.Apply(changes).Deltas {
			merge(held, delta)
		}
	}
	web := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}},
		Hostname: "web.shop.svc.cluster.local", Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
	}
	slice := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web-1"}},
		Service: "web", PodsListed: true, Ports: []model.SlicePort{{Name: "http", Number: 8080}},
		Members: []model.SliceEndpoint{{Addresses: []string{"10.1.0.1"}, Ready: true, Pod: "web-a"}},
	}
	pod := &model.Workload{
		Meta:      model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: "web-a"}, Labels: map[string]string{model.LabelTLSMode: "istio"}},
		Addresses: []string{"10.1.0.1"}, Ready: true,
	}
	outbound, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop"})
	merge(held, d.Open(outbound))
	endpoints := func() (out []string) {
		for _, l := range held.Endpoints["outbound|80||web.shop.svc.cluster.local"].Localities {
			for _, e := range l.Endpoints {
				require.True(t, e.MTLS, "%s is called in plaintext", e.Address)
				out = append(out, e.Address)
			}
		}
		return out
	}
	put(store.Event{Key: web.Key, Object: web}, store.Event{Key: slice.Key, Object: slice})
	require.Empty(t, endpoints())
	put(store.Event{Key: pod.Key, Object: pod})
	require.Equal(t, []string{"10.1.0.1"}, endpoints())
	put(store.Event{Key: pod.Key})
	require.Empty(t, endpoints())
}

func nodeAt(locality string) *model.Node {
	return &model.Node{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindNode, Name: "node-1"}},
		Locality: model.ParseLocality(locality),
	}
}

// TestWhereProxiesAre checks that a proxy without a locality has that of its Pod's node, and belongs to another group when that
// changes.
func TestWhereProxiesAre(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	pod := &model.Workload{Meta: model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: "web-1"}}, Node: "node-1"}
	silent := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-1"}
	located := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-1", Locality: model.Locality{Region: "own"}}
	other := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-2"}
	where := func(p *model.Proxy) string {
		outbound, _ := d.Index().Keys(p)
		return outbound.Locality.String()
	}
	first := nodeAt("r1/z1")
	put(d, nil, first)
	require.Nil(t, put(d, nil, pod).Rekey, "no object asks where proxies are")
	require.Empty(t, where(silent))

	put(d, nil, ruleFor("1", 0, model.TrafficPolicy{
		LoadBalancer: &model.LoadBalancer{Locality: &model.LocalityLB{Failover: []model.LocalityFailover{{From: "r1", To: "r2"}}}},
	}, nil))
	require.Equal(t, []string{"r1/z1", "own", ""}, []string{where(silent), where(located), where(other)})
	zoned := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-1", Locality: model.ParseLocality("r2/z1")}
	require.Equal(t, "r2/z1", where(zoned), "its node is elsewhere")

	second := nodeAt("r2/z1/s1")
	rekey := put(d, first, second).Rekey
	require.True(t, rekey(silent))
	require.False(t, rekey(other))
	require.Equal(t, []string{"r2/z1/s1", "own"}, []string{where(silent), where(located)})
	require.Equal(t, "r2/z1/s1", where(zoned), "Kubernetes copies only region and zone to the labels of Pods")
	rekey = put(d, pod, nil).Rekey
	require.True(t, rekey(silent))
	require.Equal(t, []string{"", "r2/z1"}, []string{where(silent), where(zoned)})
}

// TestRoundRobinOfWorkloads checks that a service with resolution DNS_ROUND_ROBIN has one endpoint, the first of the workloads
// that it selects: Envoy resolves one name.
func TestRoundRobinOfWorkloads(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	entry := &model.ServiceEntry{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "rr"}},
		Hosts: []model.Host{"rr.example.com"},
		Template: model.Service{
			Ports:      []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
			Resolution: model.ResolutionDNSRoundRobin, Selector: map[string]string{"app": "rr"}, External: true,
		},
	}
	workload := func(name, version string) *model.Workload {
		return &model.Workload{
			Meta: model.Meta{
				Key:    model.Key{Kind: model.KindWorkloadEntry, Namespace: "shop", Name: name},
				Labels: map[string]string{"app": "rr", "version": version},
			},
			Addresses: []string{name + ".example.net"}, Ready: true,
		}
	}
	rule := &model.DestinationRule{
		Meta: model.Meta{Key: model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "rr"}},
		Host: "rr.example.com", Subsets: []model.Subset{{Name: "v2", Labels: map[string]string{"version": "v2"}}},
	}
	for _, o := range []model.Object{entry, rule, workload("b", "v2"), workload("a", "v1")} {
		put(d, nil, o)
	}
	key, _ := d.Index().Keys(webProxy("shop", "web", true))
	addresses := func(delta *Delta, cluster string) (out []string) {
		for _, l := range delta.Clusters[cluster].Localities {
			for _, e := range l.Endpoints {
				out = append(out, e.Address)
			}
		}
		return out
	}
	open := d.Open(key)
	require.Equal(t, []string{"a.example.net"}, addresses(open, "outbound|80||rr.example.com"))
	require.Equal(t, []string{"b.example.net"}, addresses(open, "outbound|80|v2|rr.example.com"))
	later := put(d, workload("a", "v1"), nil).Deltas[key]
	require.Equal(t, []string{"b.example.net"}, addresses(later, "outbound|80||rr.example.com"))
}
