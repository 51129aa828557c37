package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// someProxies have fixed resources, by node ID.
type someProxies struct {
	distribution.Proxies
	proxies map[string]*model.Proxy
	has     map[string]*table.State
	lacks   map[string]bool // names of what proxies have not asked for
	left    []distribution.Disconnected
}

func (s *someProxies) Disconnected() []distribution.Disconnected { return s.left }

func (s *someProxies) OnDemand(id string) (out []distribution.Intended) {
	if s.has[id] == nil {
		return nil
	}
	for typ := range resource.NumTypes {
		for e := range s.has[id].All(typ) {
			if s.lacks[e.Name] {
				out = append(out, distribution.Intended{Type: typ, Entry: e, State: s.has[id]})
			}
		}
	}
	return out
}

func (s *someProxies) Intended(id string, types ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	p, ok := s.proxies[id]
	if !ok {
		return nil, nil, false
	}
	var out []distribution.Intended
	for _, typ := range types {
		for e := range s.has[id].All(typ) {
			if !s.lacks[e.Name] {
				out = append(out, distribution.Intended{Type: typ, Entry: e, State: s.has[id], Status: ledger.Has})
			}
		}
	}
	return p, out, true
}

func (s *someProxies) ProxyAt(ip string) (string, bool) {
	for id, p := range s.proxies {
		if p.IPs[0] == ip {
			return id, true
		}
	}
	return "", false
}

func (s *someProxies) SidecarOf(string) (model.Key, bool) { return model.Key{}, false }

// connect adds a proxy whose resources are all made from some objects.
func (s *someProxies) connect(t *testing.T, id, ip, resources string, from ...string) {
	t.Helper()
	w, err := simulate.Parse([]byte(resources))
	require.NoError(t, err)
	var updates []table.Update
	var origins []model.Key
	for _, k := range from {
		origins = append(origins, keyOf(k))
	}
	put := func(typ resource.Type, name string, e *resource.Encoded, err error) {
		require.NoError(t, err)
		updates = append(updates, table.Update{Type: typ, Name: name, Resource: e, Origins: model.OriginsOf(origins...)})
	}
	for _, m := range w.Listeners {
		e, err := resource.Encode(resource.Listener, m.Name, m)
		put(resource.Listener, m.Name, e, err)
	}
	for _, m := range w.Clusters {
		e, err := resource.Encode(resource.Cluster, m.Name, m)
		put(resource.Cluster, m.Name, e, err)
	}
	for _, m := range w.Endpoints {
		e, err := resource.Encode(resource.Endpoints, m.ClusterName, m)
		put(resource.Endpoints, m.ClusterName, e, err)
	}
	tab := table.New(id)
	tab.Commit(1, updates)
	s.proxies[id] = &model.Proxy{ID: id, Name: id, Namespace: "shop", IPs: []string{ip}, DNSDomain: "shop.svc.cluster.local", Interception: model.InterceptRedirect}
	s.has[id] = tab.State()
}

const (
	callerResources = `
listeners:
- name: virtualOutbound
  useOriginalDst: true
  address: {socketAddress: {address: 0.0.0.0, portValue: 15001}}
- name: 10.0.0.3_3306
  address: {socketAddress: {address: 10.0.0.3, portValue: 3306}}
  bindToPort: false
  filterChains:
  - filters: [{name: tcp, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: x, cluster: outbound|3306||db.shop.svc.cluster.local}}]
clusters:
- name: outbound|3306||db.shop.svc.cluster.local
  type: EDS
  metadata: {filterMetadata: {istio: {config: /apis/networking.istio.io/v1/namespaces/shop/destination-rule/db, services: [{host: db.shop.svc.cluster.local}]}}}
endpoints:
- clusterName: outbound|3306||db.shop.svc.cluster.local
  endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 10.1.0.9, portValue: 3306}}}}]}]`
	calledResources = `
listeners:
- name: virtualInbound
  address: {socketAddress: {address: 0.0.0.0, portValue: 15006}}
  filterChains:
  - name: "3306"
    filterChainMatch: {destinationPort: 3306}
    filters: [{name: tcp, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: x, cluster: inbound|3306||}}]
clusters:
- name: inbound|3306||
  type: ORIGINAL_DST`
)

func TestWhyFollowsTheCallToItsEnd(t *testing.T) {
	proxies := &someProxies{proxies: map[string]*model.Proxy{}, has: map[string]*table.State{}}
	proxies.connect(t, "web", "10.1.0.1", callerResources, "Service/shop/db", "Service/shop/other", "DestinationRule/shop/db", "EndpointSlice/shop/db-x")
	proxies.connect(t, "db-1", "10.1.0.9", calledResources)
	s := store.New()
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: 10.0.0.3, ports: [{name: mysql, port: 3306}]}",
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: db, namespace: shop}\nspec: {host: db}",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-x, namespace: shop, labels: {kubernetes.io/service-name: db}}\naddressType: IPv4\nendpoints: [{addresses: [10.1.0.9]}]\nports: [{name: mysql, port: 3306}]",
	} {
		o := decode(t, text)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	rule := model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "db"}
	refused := problem.Problem{Severity: problem.SeverityError, File: "db.yaml", Line: 3, Object: rule, Message: "is not valid YAML"}
	x := &Explainer{Snapshot: s.Snapshot, Proxies: proxies, Problems: func(k model.Key) problem.List {
		if k != rule {
			return nil
		}
		return problem.List{{Severity: problem.SeverityWarning, Object: rule, Message: "has no effect"}, refused}
	}}
	w, err := x.Why(Call{From: "web", To: "tcp://db:3306"})
	require.NoError(t, err)
	require.Equal(t, "db.shop.svc.cluster.local", w.Host)
	require.Equal(t, "10.0.0.3:3306", w.Address)
	require.Equal(t, "10.0.0.3_3306", w.Outbound.Result.Listener)
	require.Equal(t, map[string]float64{"10.1.0.9:3306": 100}, w.Outbound.Result.Endpoints)
	const cluster = "outbound|3306||db.shop.svc.cluster.local"
	require.Equal(t, []Source{
		{Object: rule, Origin: "kubernetes", Decides: "policy of " + cluster, Error: &refused},
		{Object: model.Key{Kind: model.KindService, Namespace: "shop", Name: "db"}, Origin: "kubernetes", Decides: "cluster " + cluster},
		{Object: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "db-x"}, Origin: "kubernetes", Decides: "endpoints of " + cluster},
	}, w.Outbound.Objects)
	require.Len(t, w.Inbound, 1)
	require.Equal(t, "db-1.shop", w.Inbound[0].Proxy)
	require.Equal(t, "3306", w.Inbound[0].Result.Chain)
	require.Empty(t, w.Notes)

	proxies.lacks = map[string]bool{cluster: true}
	w, err = x.Why(Call{From: "web", To: "tcp://db:3306"})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"10.1.0.9:3306": 100}, w.Outbound.Result.Endpoints)
	require.Len(t, w.Inbound, 1)
	require.Equal(t, []string{"the proxy gets these on demand and does not have them yet, so the call waits for them: cluster " + cluster}, w.Notes)
	proxies.lacks = nil

	proxies.proxies["db-1"].Interception = model.InterceptNone
	w, err = x.Why(Call{From: "web", To: "tcp://db:3306"})
	require.NoError(t, err)
	require.Empty(t, w.Inbound, "no sidecar takes the call")
	require.Equal(t, []string{"the sidecar of 10.1.0.9:3306: " + errNotBetween.Error()}, w.Notes)

	delete(proxies.proxies, "db-1")
	w, err = x.Why(Call{From: "web", To: "tcp://db:3306"})
	require.NoError(t, err)
	require.Empty(t, w.Notes, "no sidecar is known there")
	pod := decode(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: db-1, namespace: shop, labels: {security.istio.io/tlsMode: istio}}\n"+
		"spec: {}\nstatus: {podIP: 10.1.0.9, podIPs: [{ip: 10.1.0.9}]}")
	s.Apply([]store.Event{{Key: pod.Metadata().Key, Object: pod}})
	w, err = x.Why(Call{From: "web", To: "tcp://db:3306"})
	require.NoError(t, err)
	require.Empty(t, w.Inbound)
	require.Equal(t, []string{"no sidecar of db-1.shop is connected to this control plane, so this answer leaves out whether the calls to it are accepted: " +
		"see 'moonsail proxies' for the proxies of all control planes"}, w.Notes)

	proxies.left = []distribution.Disconnected{{ID: "db-1", Name: "db-1", Namespace: "shop", IPs: []string{"10.1.0.9"}, Since: time.Now().Add(-65 * time.Second)}}
	w, err = x.Why(Call{From: "web", To: "tcp://db:3306"})
	require.NoError(t, err)
	require.Equal(t, "reaches db-1.shop, whose sidecar is disconnected for 1m5s and may not answer", w.Verdict.Text)
	require.Equal(t, []string{"the sidecar of db-1.shop is disconnected for 1m5s: it may be stuck, so that the call hangs, and this answer leaves out " +
		"whether it accepts the call: see 'moonsail proxies db-1.shop'"}, w.Notes)
	w, err = x.Why(Call{From: "web", To: "tcp://db:3306", Elsewhere: func(ids []string) map[string]bool { return map[string]bool{ids[0]: true} }})
	require.NoError(t, err)
	require.Equal(t, "reaches db-1.shop", w.Verdict.Text, "another control plane has it")
	proxies.left = nil

	entry := decode(t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: far, namespace: shop}\n"+
		"spec: {hosts: [far.example.com], resolution: DNS, ports: [{number: 3306, name: mysql, protocol: MYSQL}]}\n"+
		"status: {addresses: [{host: far.example.com, value: \"2001:2::1\"}, {host: far.example.com, value: 240.240.1.1}]}")
	s.Apply([]store.Event{{Key: entry.Metadata().Key, Object: entry}})
	for capture, address := range map[bool]string{false: caller.Elsewhere, true: "240.240.1.1"} {
		proxies.proxies["web"].DNSCapture = capture
		w, err = x.Why(Call{From: "web", To: "tcp://far.example.com:3306"})
		require.NoError(t, err)
		require.Equal(t, address+":3306", w.Address)
	}

	w, err = x.Why(Call{From: "web", To: "http://example.com"})
	require.NoError(t, err)
	require.Equal(t, caller.Elsewhere+":80", w.Address)
	require.True(t, w.Unknown)
	require.Equal(t, []string{"no Service or ServiceEntry has the host example.com"}, w.Verdict.Reasons)
	w, err = x.Why(Call{From: "web", To: "http://far.exampel.com:3306"})
	require.NoError(t, err)
	require.Equal(t, []string{`no Service or ServiceEntry has the host far.exampel.com; did you mean "far.example.com"?`}, w.Verdict.Reasons)
	w, err = x.Why(Call{From: "web", To: "tcp://far.example.com:3307"})
	require.NoError(t, err)
	require.Contains(t, w.Notes, "far.example.com has no port 3307: its ports are 3306")
	for to, says := range map[string]string{"gopher://x": "unknown scheme", "http://": "no host", "http://%zz": "not a URL"} {
		_, err = x.Why(Call{From: "web", To: to})
		require.ErrorContains(t, err, says)
	}
	_, err = x.Why(Call{From: "unknown", To: "http://x"})
	require.ErrorAs(t, err, &NotConnected{})
}

const (
	grpcCallerResources = `
listeners:
- name: virtualOutbound
  useOriginalDst: true
  address: {socketAddress: {address: 0.0.0.0, portValue: 15001}}
- name: 10.0.0.4_9090
  address: {socketAddress: {address: 10.0.0.4, portValue: 9090}}
  bindToPort: false
  filterChains:
  - filters:
    - name: http
      typedConfig:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        statPrefix: x
        routeConfig: {name: r, virtualHosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: api}}]}]}
        httpFilters: [{name: router, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
clusters:
- name: api
  type: STATIC
  transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: api}}
  loadAssignment: {clusterName: api, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 10.1.0.8, portValue: 9090}}}}]}]}`
	grpcCalledResources = `
listeners:
- name: virtualInbound
  address: {socketAddress: {address: 0.0.0.0, portValue: 15006}}
  listenerFilters: [{name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}]
  filterChains:
  - name: mtls
    filterChainMatch: {transportProtocol: tls}
    transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext}}
    filters:
    - name: http
      typedConfig:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        statPrefix: x
        routeConfig: {name: r, virtualHosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, directResponse: {status: 200}}]}]}
        httpFilters:
        - name: rbac
          typedConfig:
            "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
            rules: {policies: {posts: {permissions: [{header: {name: ":method", stringMatch: {exact: POST}}}], principals: [{any: true}]}}}
        - {name: router, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}`
)

// TestWhyNamesSidecarsElsewhere checks that a call with the mesh's certificate has a note if the sidecars of its endpoints are
// connected to other control planes.
func TestWhyNamesSidecarsElsewhere(t *testing.T) {
	const certificate = "TlsContext, sni: api, commonTlsContext: {tlsCertificateSdsSecretConfigs: [{name: default}]}}"
	var endpoints []string
	for i := range 5 {
		endpoints = append(endpoints, fmt.Sprintf("{endpoint: {address: {socketAddress: {address: 10.1.0.%d, portValue: 9090}}}}", i+1))
	}
	resources := strings.NewReplacer("TlsContext, sni: api}", certificate,
		"{endpoint: {address: {socketAddress: {address: 10.1.0.8, portValue: 9090}}}}", strings.Join(endpoints, ", ")).Replace(grpcCallerResources)
	proxies := &someProxies{proxies: map[string]*model.Proxy{}, has: map[string]*table.State{}}
	proxies.connect(t, "web", "10.1.0.9", resources)
	s := store.New()
	o := decode(t, "apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop}\nspec: {clusterIP: 10.0.0.4, ports: [{name: grpc, port: 9090}]}")
	s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	w, err := (&Explainer{Snapshot: s.Snapshot, Proxies: proxies}).Why(Call{From: "web", To: "grpc://api:9090/pkg.S/M"})
	require.NoError(t, err)
	require.Len(t, w.Notes, 1)
	require.Contains(t, w.Notes[0], "no sidecar of 10.1.0.1:9090, 10.1.0.2:9090, 10.1.0.3:9090 and 2 more is connected to this control plane, so")
}

// TestWhyPostsForGRPC checks that a call of gRPC has its own method, through mutual TLS to the policy of the server.
func TestWhyPostsForGRPC(t *testing.T) {
	proxies := &someProxies{proxies: map[string]*model.Proxy{}, has: map[string]*table.State{}}
	proxies.connect(t, "web", "10.1.0.1", grpcCallerResources)
	proxies.connect(t, "api-1", "10.1.0.8", grpcCalledResources)
	s := store.New()
	o := decode(t, "apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop}\nspec: {clusterIP: 10.0.0.4, ports: [{name: grpc, port: 9090}]}")
	s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	x := &Explainer{Snapshot: s.Snapshot, Proxies: proxies}
	for _, tc := range []struct {
		call   Call
		method string
		status int
	}{
		{Call{From: "web", To: "grpc://api:9090/pkg.S/M"}, "POST", 200},
		{Call{From: "web", To: "http2://api:9090/pkg.S/M"}, "GET", 403},
		{Call{From: "web", To: "grpc://api:9090/pkg.S/M", Method: "GET"}, "GET", 403},
	} {
		w, err := x.Why(tc.call)
		require.NoError(t, err)
		require.Equal(t, tc.method, w.Method)
		require.Len(t, w.Inbound, 1)
		require.Equal(t, tc.status, w.Inbound[0].Result.Status, tc.call)
	}
}

// TestWhyOfAnUndecidedCall checks that a feature of Envoy that the simulator does not know is not taken for a wrong question.
func TestWhyOfAnUndecidedCall(t *testing.T) {
	proxies := &someProxies{proxies: map[string]*model.Proxy{}, has: map[string]*table.State{}}
	unknown := `filters: [{name: redis, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}]`
	known := callerResources[strings.Index(callerResources, "filters: ["):]
	known, _, _ = strings.Cut(known, "\n")
	proxies.connect(t, "web", "10.1.0.1", strings.Replace(callerResources, known, unknown, 1))
	s := store.New()
	x := &Explainer{Snapshot: s.Snapshot, Proxies: proxies}
	_, err := x.Why(Call{From: "web", To: "tcp://10.0.0.3:3306"})
	var undecided UndecidedError
	require.ErrorAs(t, err, &undecided)
	require.Equal(t, "web.shop", undecided.Proxy)
	require.ErrorContains(t, err, "is unknown to the simulator")
}

// TestWhyOfAClientWithACertificate checks calls that enter at a gateway with mutual TLS.
func TestWhyOfAClientWithACertificate(t *testing.T) {
	proxies := &someProxies{proxies: map[string]*model.Proxy{}, has: map[string]*table.State{}}
	proxies.connect(t, "gw", "10.1.0.1", `
listeners:
- name: 0.0.0.0_443
  address: {socketAddress: {address: 0.0.0.0, portValue: 443}}
  filterChains:
  - transportSocket: {name: tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, requireClientCertificate: true, commonTlsContext: {}}}
    filters: [{name: tcp, typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, statPrefix: x, cluster: db}}]
clusters:
- name: db
  type: STATIC
  loadAssignment: {clusterName: db, endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 10.1.0.9, portValue: 3306}}}}]}]}`)
	proxies.proxies["gw"].Type = model.ProxyRouter
	x := &Explainer{Snapshot: store.New().Snapshot, Proxies: proxies}
	for principal, closed := range map[string]string{"": "the client has no certificate", "spiffe://cluster.local/ns/shop/sa/web": ""} {
		w, err := x.Why(Call{From: "gw", To: "tls://a.example.com:443", Principal: principal})
		require.NoError(t, err)
		require.Equal(t, closed, w.Outbound.Result.Closed)
	}
}
