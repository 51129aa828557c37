package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is how long a test waits for what must happen.
const patient = time.Minute

// harness is a server on a real connection, with two tables and an engine's role.
type harness struct {
	t        *testing.T
	server   *Server
	observer *recorder
	addr     string
	out, in  *table.Table
	loading  chan context.Context // told of proxies that wait until they are gone; nil: they need not

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
	carrier := h.server.Carry(on, Port{})
	served := make(chan struct{})
	go func() { defer close(served); _ = carrier.Serve(l) }()
	t.Cleanup(func() {
		carrier.Stop()
		<-served
		h.server.Close()
	})
	return h
}

// overEach runs a test over each transport.
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

// Keep implements Binder: what is to be kept is noted, and the tables stay.
func (h *harness) Keep(_ context.Context, _ *model.Proxy, routeConfigs []string) error {
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

// eventually waits for something that needs no more help.
func (h *harness) eventually(what string, ok func() bool) {
	h.t.Helper()
	require.Eventually(h.t, ok, patient, time.Millisecond, what)
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

func endpoints(cluster, variant string) table.Update {
	return encode(resource.Endpoints, cluster, &endpointv3.ClusterLoadAssignment{ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{Locality: &corev3.Locality{Zone: variant}}}})
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
		encode(resource.RouteConfigShell, name, &routev3.RouteConfiguration{Name: name, Vhds: &routev3.Vhds{}}),
	}
}

func remove(t resource.Type, name string) table.Update { return table.Update{Type: t, Name: name} }

// recorder is an Observer that keeps what it is told.
type recorder struct {
	mu        sync.Mutex // guards the maps
	published map[model.Revision]int
	sent      map[model.Revision]int
	settled   map[model.Revision]map[Outcome]int
}

func newRecorder() *recorder {
	return &recorder{published: map[model.Revision]int{}, sent: map[model.Revision]int{}, settled: map[model.Revision]map[Outcome]int{}}
}

func (r *recorder) Published(rev model.Revision, concerned int, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published[rev] = concerned
	r.settled[rev] = map[Outcome]int{}
}

func (r *recorder) Sent(rev model.Revision, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[rev]++
}

func (r *recorder) Settled(from, to model.Revision, o Outcome, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rev := range r.published {
		if rev > from && rev <= to {
			r.settled[rev][o]++
		}
	}
}

// outcomes are a revision's settled streams by outcome.
func (r *recorder) outcomes(rev model.Revision) map[Outcome]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[Outcome]int{}
	for o, n := range r.settled[rev] {
		out[o] = n
	}
	return out
}

// client is a delta stream that does nothing by itself.
type client struct {
	t      *testing.T
	h      *harness
	probes int
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
	got    chan *discoveryv3.DeltaDiscoveryResponse
	ended  chan error
	node   *corev3.Node
	read   chan struct{} // nothing is read before it is closed
}

const nodeID = "sidecar~10.0.0.1~app-1.shop~shop.svc.cluster.local"

func (h *harness) connect(agent string) *client { return h.connectAs(nodeID, agent) }

func (h *harness) connectAs(id, agent string) *client {
	c := h.connectPaused(id, agent)
	close(c.read)
	return c
}

// connectPaused connects a client that does not read until its channel read is closed.
func (h *harness) connectPaused(id, agent string) *client {
	conn, err := grpc.NewClient("passthrough:///"+h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(h.t, err)
	c := &client{t: h.t, h: h, stream: stream, got: make(chan *discoveryv3.DeltaDiscoveryResponse), ended: make(chan error, 1),
		node: &corev3.Node{Id: id, UserAgentName: agent}, read: make(chan struct{})}
	done := make(chan struct{})
	c.cancel = func() { cancel(); <-done; _ = conn.Close() }
	go func() {
		defer close(done)
		select {
		case <-c.read:
		case <-ctx.Done():
			return
		}
		for {
			r, err := stream.Recv()
			if err != nil {
				c.ended <- err
				return
			}
			select {
			case c.got <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	h.t.Cleanup(c.cancel)
	return c
}

func (c *client) send(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	r.Node, c.node = c.node, nil
	require.NoError(c.t, c.stream.Send(r))
}

func (c *client) subscribe(t resource.Type, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: names})
}

func (c *client) ack(r *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
}

func (c *client) nack(r *discoveryv3.DeltaDiscoveryResponse, message string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ErrorDetail: &status.Status{Code: 13, Message: message}})
}

// expect receives a response of a type with exactly these resources; "-name" is a removed one.
func (c *client) expect(t resource.Type, names ...string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	select {
	case r := <-c.got:
		require.Equal(c.t, t.URL(), r.TypeUrl, "got %v", listed(r))
		require.ElementsMatch(c.t, names, listed(r))
		return r
	case err := <-c.ended:
		c.t.Fatalf("the stream has ended: %v", err)
	case <-time.After(patient):
		c.t.Fatalf("no %s response", t)
	}
	return nil
}

// take is expect and ack.
func (c *client) take(t resource.Type, names ...string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r := c.expect(t, names...)
	c.ack(r)
	return r
}

// quiet asserts that nothing is sent: it changes endpoints, which never wait, and the
// next response must be these.
func (c *client) quiet() {
	c.t.Helper()
	c.probes++
	c.h.commit(endpoints("probe", fmt.Sprint(c.probes)))
	if c.probes == 1 {
		c.subscribe(resource.Endpoints, "probe")
	}
	c.take(resource.Endpoints, "probe")
}

func listed(r *discoveryv3.DeltaDiscoveryResponse) (out []string) {
	for _, res := range r.Resources {
		out = append(out, res.Name)
	}
	for _, n := range r.RemovedResources {
		out = append(out, "-"+n)
	}
	return out
}

// warm brings a client to where it has one cluster, its endpoints and one listener.
func (h *harness) warm(agent string) *client {
	h.t.Helper()
	h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"))
	c := h.connect(agent)
	c.subscribe(resource.Cluster)
	c.take(resource.Cluster, "c1")
	c.subscribe(resource.Endpoints, "c1")
	c.take(resource.Endpoints, "c1")
	c.subscribe(resource.Listener)
	c.take(resource.Listener, "l1")
	return c
}
