package derive

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestIngressKeepsService checks that a port of a Sidecar's ingress listener still belongs to its service.
func TestIngressKeepsService(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	st := store.New()
	apply := func(events ...store.Event) map[GroupKey]*Delta {
		_, changes := st.Apply(events)
		return d.Apply(changes).Deltas
	}
	service := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}, ResourceVersion: "1"},
		Hostname: "web.shop.svc.cluster.local", Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 80, TargetPort: 8080, Protocol: model.ProtocolHTTP}},
	}
	sidecar := &model.Sidecar{
		Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "web"}, ResourceVersion: "1"},
		Ingress: []model.IngressListener{
			{Port: model.SidecarPort{Number: 8080, Protocol: model.ProtocolHTTP}}, {Port: model.SidecarPort{Number: 9090, Protocol: model.ProtocolHTTP}},
		},
	}
	apply(store.Event{Key: sidecar.Key, Object: sidecar})
	_, in := d.Index().Keys(webProxy("shop", "web", true))
	require.Empty(t, d.Open(in).Clusters["inbound|8080||"].Service)
	delta := apply(store.Event{Key: service.Key, Object: service})[in]
	require.NotNil(t, delta, "a service that comes is seen")
	require.Equal(t, ir.ServiceRef{Host: service.Hostname, Name: "web", Namespace: "shop"}, delta.Clusters["inbound|8080||"].Service)
	require.Empty(t, delta.Clusters["inbound|9090||"].Service, "no service reaches the workload there")
}

// TestAnyWorker checks that connections are balanced over a sidecar's workers unless the proxy turns that off. Outbound groups
// do not depend on it.
func TestAnyWorker(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	key := func(anyWorker bool) (outbound, inbound GroupKey) {
		return d.Index().Keys(&model.Proxy{
			Type: model.ProxySidecar, Namespace: "shop", Name: "a", IPs: []string{"10.0.0.1"}, AnyWorker: anyWorker,
		})
	}
	for _, anyWorker := range []bool{false, true} {
		_, in := key(anyWorker)
		require.Equal(t, !anyWorker, d.Open(in).Listeners["virtualInbound"].ExactBalance)
	}
	first, _ := key(false)
	second, _ := key(true)
	require.Equal(t, first, second)
}

// TestMeshConnections checks that the mesh's settings of connections reach existing clusters and listeners.
func TestMeshConnections(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	put(d, nil, &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}},
		Hostname: "web.shop.svc.cluster.local", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")}, Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 80, TargetPort: 8080, Protocol: model.ProtocolAuto}}, Resolution: model.ResolutionStatic,
	})
	outbound, inbound := d.Index().Keys(webProxy("shop", "web", true))
	before := d.Open(outbound).Listeners["10.9.0.1_80"]
	require.True(t, before.ContinueOnTimeout)
	require.Equal(t, policy.InspectTimeout, before.InspectTimeout)
	d.Open(inbound)

	config := func(detection time.Duration) *model.MeshConfig {
		refresh := time.Hour
		return &model.MeshConfig{
			Meta:      model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
			Keepalive: &model.TCPKeepalive{Probes: 7}, DNSRefresh: &refresh, DetectionTimeout: &detection,
		}
	}
	some := config(time.Second)
	deltas := put(d, nil, some).Deltas
	for _, name := range []string{"outbound|80||web.shop.svc.cluster.local", ir.PassthroughCluster} {
		require.Equal(t, some.Keepalive, deltas[outbound].Clusters[name].Keepalive, name)
	}
	require.Equal(t, time.Hour, deltas[outbound].Clusters["outbound|80||web.shop.svc.cluster.local"].DNSRefresh)
	for _, name := range []string{"inbound|8080||", ir.InboundPassthroughCluster} {
		require.Equal(t, some.Keepalive, deltas[inbound].Clusters[name].Keepalive, name)
	}
	require.Equal(t, time.Second, deltas[outbound].Listeners["10.9.0.1_80"].InspectTimeout)
	require.Equal(t, time.Second, deltas[inbound].Listeners["virtualInbound"].InspectTimeout)

	forever := put(d, some, config(0)).Deltas
	require.True(t, forever[outbound].Listeners["10.9.0.1_80"].InspectForever)
	require.True(t, forever[inbound].Listeners["virtualInbound"].InspectForever)
	require.False(t, put(d, some, nil).Deltas[outbound].Listeners["10.9.0.1_80"].InspectForever)
}

// TestBaseline checks that the mesh's traffic policy applies to clients and servers where no DestinationRule sets a field.
func TestBaseline(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	put(d, nil, webOf("web"))
	put(d, nil, &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "db"}},
		Hostname: "db.shop.svc.cluster.local", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/32")},
		Ports: []model.ServicePort{{Number: 3306, Protocol: model.ProtocolTCP}}, Resolution: model.ResolutionStatic,
	})
	client := webProxy("shop", "web", true)
	client.Locality = model.Locality{Region: "here"}
	outbound, inbound := d.Index().Keys(client)
	d.Open(outbound)
	d.Open(inbound)
	require.Zero(t, outbound.Locality)
	idle := time.Minute
	pool := &model.ConnectionPool{MaxConnections: 7, TCPIdleTimeout: &idle, Upgrade: model.H2UpgradeAlways}
	outlier := &model.OutlierDetection{MaxEjectionPercent: 30}
	config := &model.MeshConfig{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
		Baseline: &model.TrafficPolicy{ConnectionPool: pool, OutlierDetection: outlier},
	}
	const web, db = "outbound|80||web.shop.svc.cluster.local", "outbound|3306||db.shop.svc.cluster.local"
	deltas := put(d, nil, config).Deltas
	require.Equal(t, *config.Baseline, deltas[outbound].Clusters[web].Policy)
	require.Equal(t, pool, deltas[inbound].Clusters["inbound|8080||"].Policy.ConnectionPool)
	require.Nil(t, deltas[inbound].Clusters["inbound|8080||"].Policy.OutlierDetection)
	bytes := *pool
	bytes.Upgrade = model.H2UpgradeDefault
	require.Equal(t, &bytes, deltas[outbound].Clusters[db].Policy.ConnectionPool, "TCP is not HTTP/2")
	require.Equal(t, model.TrafficPolicy{ConnectionPool: &bytes}, deltas[outbound].Clusters[ir.PassthroughCluster].Policy)
	require.Equal(t, &idle, deltas[outbound].Listeners["10.9.0.2_3306"].Default.TCP.IdleTimeout)
	outbound, _ = d.Index().Keys(client)
	require.NotZero(t, outbound.Locality, "endpoints that fail are left for near ones")

	own := &model.ConnectionPool{MaxConnections: 9}
	rule := &model.DestinationRule{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "web"}},
		Host:    "web.shop.svc.cluster.local",
		Policy:  model.TrafficPolicy{ConnectionPool: own},
		Subsets: []model.Subset{{Name: "v1", Ports: map[uint32]model.TrafficPolicy{80: {OutlierDetection: &model.OutlierDetection{}}}}},
	}
	d.Open(outbound)
	deltas = put(d, nil, rule).Deltas
	require.Equal(t, model.TrafficPolicy{ConnectionPool: own, OutlierDetection: outlier}, deltas[outbound].Clusters[web].Policy)
	require.Equal(t, model.TrafficPolicy{ConnectionPool: pool, OutlierDetection: &model.OutlierDetection{}},
		deltas[outbound].Clusters["outbound|80|v1|web.shop.svc.cluster.local"].Policy)
	require.Equal(t, own, deltas[inbound].Clusters["inbound|8080||"].Policy.ConnectionPool)
}

// webOf is a service of HTTP in the namespace "shop".
func webOf(name string) *model.Service {
	return &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: name}},
		Hostname: model.Host(name + ".shop.svc.cluster.local"), Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")},
		Selector: map[string]string{"app": name}, Ports: []model.ServicePort{{Number: 80, TargetPort: 8080, Protocol: model.ProtocolHTTP}},
		Resolution: model.ResolutionStatic,
	}
}

// TestProxyHeaders checks that the mesh's setting reaches existing listeners and virtual hosts, except those of proxies with
// their own setting.
func TestProxyHeaders(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	put(d, nil, webOf("web"))
	own := webProxy("shop", "web", true)
	set := model.ProxyHeaders{Set: true, NoRequestIDs: true, ForwardHost: true, KeepCase: true}
	own.Headers = set
	outbound, inbound := d.Index().Keys(webProxy("shop", "web", true))
	ownOutbound, ownInbound := d.Index().Keys(own)
	d.Open(outbound)
	d.Open(inbound)
	requireHeaders(t, set, d.Open(ownOutbound))
	requireHeaders(t, set, d.Open(ownInbound))
	config := &model.MeshConfig{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
		Headers: &model.ProxyHeaders{Set: true, NoAttempts: true, KeepCase: true},
	}
	deltas := put(d, nil, config).Deltas
	requireHeaders(t, *config.Headers, deltas[outbound])
	requireHeaders(t, *config.Headers, deltas[inbound])
	require.Contains(t, deltas[outbound].VirtualHosts, "80/web.shop.svc.cluster.local:80")
	for _, own := range []GroupKey{ownOutbound, ownInbound} {
		if delta := deltas[own]; delta != nil && len(delta.Listeners) > 0 {
			requireHeaders(t, set, delta)
		}
	}
}

func requireHeaders(t *testing.T, want model.ProxyHeaders, in *Delta) {
	t.Helper()
	chains := 0
	for _, l := range in.Listeners {
		if l == nil {
			continue
		}
		for _, c := range l.Chains {
			if c.HTTP != nil {
				chains++
				require.Equal(t, want, c.HTTP.Headers, l.Name)
			}
		}
	}
	require.NotZero(t, chains)
	if v := in.VirtualHosts["80/web.shop.svc.cluster.local:80"]; v != nil {
		require.Equal(t, !want.NoAttempts, v.IncludeAttempts)
		require.Equal(t, want.ForwardHost, v.ForwardHost)
	}
	for _, name := range []string{"outbound|80||web.shop.svc.cluster.local", ir.PassthroughCluster, "inbound|8080||"} {
		if c := in.Clusters[name]; c != nil {
			require.Equal(t, want.KeepCase, c.KeepCase, name)
			chains++
		}
	}
	require.Greater(t, chains, 1, "there is no cluster")
}

// TestOwnListenerOfHeadlessService checks that a workload with an ingress listener at its own address has no outbound listener
// there: Envoy refuses two listeners of one name. Other Pods of a headless service have one.
func TestOwnListenerOfHeadlessService(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	sidecar := &model.Sidecar{
		Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "db"}},
		Ingress: []model.IngressListener{
			{Port: model.SidecarPort{Number: 9042, Protocol: model.ProtocolTCP}, Capture: model.CaptureNone, Endpoint: "127.0.0.1:9999"},
			{Port: model.SidecarPort{Number: 80, Protocol: model.ProtocolHTTP}, Capture: model.CaptureNone, Bind: "0.0.0.0"},
		},
	}
	put(d, nil, sidecar)
	put(d, nil, &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "api"}},
		Hostname: "api.shop.svc.cluster.local", Ports: []model.ServicePort{{Number: 80, Protocol: model.ProtocolHTTP}, {Number: 81, Protocol: model.ProtocolHTTP}},
	})
	proxy := func(ip string) *model.Proxy {
		p := webProxy("shop", "db", true)
		p.IPs = []string{ip}
		return p
	}
	a, b := proxy("10.0.0.1"), proxy("10.0.0.2")
	shared, _ := d.Index().Keys(a)
	other, _ := d.Index().Keys(b)
	require.Equal(t, shared, other, "no headless service has the port")

	db := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "db"}},
		Hostname: "db.shop.svc.cluster.local", Headless: true, Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 9042, TargetPort: 9042, Protocol: model.ProtocolTCP}},
	}
	for _, p := range []*model.Proxy{a, b} {
		pod := &model.Workload{
			Meta:      model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: p.IPs[0]}, Labels: map[string]string{"app": "web"}},
			Addresses: p.IPs, Ready: true,
		}
		put(d, nil, pod)
	}
	require.True(t, put(d, nil, db).Rekey(a))
	listeners := func(p *model.Proxy) (outbound, inbound []string) {
		out, in := d.Index().Keys(p)
		return slices.Sorted(maps.Keys(d.Open(out).Listeners)), slices.Sorted(maps.Keys(d.Open(in).Listeners))
	}
	outbound, inbound := listeners(a)
	require.Equal(t, []string{"0.0.0.0_81", "10.0.0.2_9042", "virtualOutbound"}, outbound)
	require.Equal(t, []string{"0.0.0.0_80", "10.0.0.1_9042", "virtualInbound"}, inbound)
	outbound, _ = listeners(b)
	require.Equal(t, []string{"0.0.0.0_81", "10.0.0.1_9042", "virtualOutbound"}, outbound)

	require.True(t, put(d, db, nil).Rekey(a))
	out, _ := d.Index().Keys(a)
	require.Equal(t, shared, out)

	change := func(of func(*model.Service)) *model.Service {
		s := *db
		s.Ports = slices.Clone(db.Ports)
		of(&s)
		return &s
	}
	for name, c := range map[string]struct {
		service *model.Service
		split   bool
	}{
		"another namespace": {change(func(s *model.Service) { s.Namespace, s.Hostname = "bank", "db.bank.svc.cluster.local" }), false},
		"another port":      {change(func(s *model.Service) { s.Ports[0].Number = 9043 }), false},
		"endpoints of any namespace": {change(func(s *model.Service) {
			s.Namespace, s.Hostname, s.Selector = "bank", "db.bank.svc.cluster.local", nil
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			rekey := put(d, nil, c.service).Rekey
			out, _ := d.Index().Keys(a)
			put(d, c.service, nil)
			require.Equal(t, c.split, rekey != nil && rekey(a))
			require.Equal(t, c.split, out != shared)
		})
	}
}
