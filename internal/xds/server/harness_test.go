package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is how long a test waits for something that must happen.
const testTimeout = time.Minute

// harness is a server on a real connection, with two tables, in the role of the engine.
type harness struct {
	t        *testing.T
	server   *Server
	observer *recorder
	addr     string
	out, in  *table.Table
	loading  chan context.Context // receives the contexts of proxies in Bind, which then waits until they are gone; nil: Bind does not wait

	mu      sync.Mutex // guards what follows
	rev     model.Revision
	rebinds map[string]func([]*table.Table)
	kept    []string
	proxies []*model.Proxy
	bindErr error
	closed  int // released bindings
}

func newHarness(t *testing.T, on Transport, opts Options) *harness {
	h := &harness{t: t, observer: newRecorder(), out: table.New("out"), in: table.New("in"), rebinds: map[string]func([]*table.Table){}}
	h.server = New(h, h.observer, slog.New(slog.DiscardHandler), opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.addr = l.Addr().String()
	server, done := h.server.NewPortServer(on, Port{}), make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() {
		await.End(t, server.Stop)
		await.From(t, done)
		await.End(t, h.server.Close)
	})
	return h
}

// overEach runs a test on each transport.
func overEach(t *testing.T, test func(*testing.T, Transport)) {
	for _, on := range []Transport{TransportGRPC, TransportHTTP2} {
		t.Run(string(on), func(t *testing.T) { test(t, on) })
	}
}

// Bind implements Binder.
func (h *harness) Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) ([]*table.Table, func(), error) {
	if h.loading != nil {
		h.loading <- ctx
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bindErr != nil {
		return nil, nil, h.bindErr
	}
	h.rebinds[p.ID] = rebind
	h.proxies = append(h.proxies, p)
	return []*table.Table{h.out, h.in}, func() { h.mu.Lock(); h.closed++; h.mu.Unlock() }, nil
}

// AddShards implements Binder. It records the route configurations, and the tables stay.
func (h *harness) AddShards(_ context.Context, _ *model.Proxy, routeConfigs []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, routeConfigs...)
	return nil
}

// commit publishes a change of the outbound table.
func (h *harness) commit(updates ...table.Update) model.Revision {
	return h.commitTo(h.out, updates...)
}

func (h *harness) commitTo(t *table.Table, updates ...table.Update) model.Revision {
	h.mu.Lock()
	h.rev++
	rev := h.rev
	h.mu.Unlock()
	if t.Commit(rev, updates) > 0 {
		h.server.Publish(rev, []*table.Table{t})
	}
	return rev
}

// eventually waits for a condition.
func (h *harness) eventually(what string, ok func() bool) {
	h.t.Helper()
	require.Eventually(h.t, ok, testTimeout, time.Millisecond, what)
}

func encode(t resource.Type, name string, m proto.Message) table.Update {
	e, err := resource.Encode(t, name, m)
	if err != nil {
		panic(err)
	}
	return table.Update{Type: t, Name: name, Resource: e}
}

func edsCluster(name, variant string) table.Update {
	return encode(resource.Cluster, name, &clusterv3.Cluster{Name: name, AltStatName: variant,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}})
}

// resolvedCluster is a cluster whose endpoints are the addresses of a DNS name.
func resolvedCluster(name, variant string) table.Update {
	return encode(resource.Cluster, name, &clusterv3.Cluster{Name: name, AltStatName: variant,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: resource.DNSClusterType}}})
}

// endpoints are those of a cluster. The part of its name after the last "|" is their host.
func endpoints(cluster, variant string) table.Update {
	return encodeEndpoints(cluster, &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: variant}})
}

func encodeEndpoints(cluster string, of *endpointv3.LocalityLbEndpoints) table.Update {
	u := encode(resource.Endpoints, cluster, &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{of}})
	u.Resource.Host = cluster[strings.LastIndexByte(cluster, '|')+1:]
	return u
}

func listener(name, variant string) table.Update {
	return encode(resource.Listener, name, &listenerv3.Listener{Name: name, StatPrefix: variant})
}

func virtualHost(name, cluster string) table.Update {
	return encode(resource.VirtualHost, name, &routev3.VirtualHost{Name: name, Domains: []string{name}, Routes: []*routev3.Route{{
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}}}})
}

func routeConfig(name string) []table.Update {
	return []table.Update{
		encode(resource.RouteConfig, name, &routev3.RouteConfiguration{Name: name}),
		encode(resource.VHDSRouteConfig, name, &routev3.RouteConfiguration{Name: name, Vhds: &routev3.Vhds{}}),
	}
}

func remove(t resource.Type, name string) table.Update { return table.Update{Type: t, Name: name} }

// recorder is an Observer that records its calls.
type recorder struct {
	mu        sync.Mutex // guards the maps
	published map[model.Revision]int
	sent      map[model.Revision]int
	settled   map[model.Revision]map[distribution.Outcome]int

	gone func() // called when a stream ends without a revision, unless it is nil
}

func newRecorder() *recorder {
	return &recorder{published: map[model.Revision]int{}, sent: map[model.Revision]int{}, settled: map[model.Revision]map[distribution.Outcome]int{}}
}

func (r *recorder) Published(rev model.Revision, concerned int, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published[rev] = concerned
	r.settled[rev] = map[distribution.Outcome]int{}
}

func (r *recorder) Sent(rev model.Revision, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[rev]++
}

func (r *recorder) Settled(from, to model.Revision, o distribution.Outcome, _ time.Time) {
	if r.gone != nil && o == distribution.Gone {
		r.gone()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for rev := range r.published {
		if rev > from && rev <= to {
			r.settled[rev][o]++
		}
	}
}

// outcomes returns the number of settled streams of a revision by outcome.
func (r *recorder) outcomes(rev model.Revision) map[distribution.Outcome]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[distribution.Outcome]int{}
	for o, n := range r.settled[rev] {
		out[o] = n
	}
	return out
}
