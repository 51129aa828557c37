package controlplane

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/drain"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// mesh is several control planes of one mesh. Each knows those that started before it.
type mesh struct {
	t      *testing.T
	caDir  string
	planes []*identityPlane
	dirs   []string // directories of their configurations
}

func newMesh(t *testing.T) *mesh {
	return &mesh{t: t, caDir: filepath.Join(t.TempDir(), "ca")}
}

// add starts a control plane that knows the earlier ones, and further addresses.
func (m *mesh) add(more ...string) *identityPlane {
	m.t.Helper()
	unheard := len(more) > 0
	for _, p := range m.planes {
		more = append(more, p.secure)
	}
	p := startIdentities(m.t, m.caDir, func(o *Options) {
		o.Replicas = Replicas{Addresses: more, Every: 20 * time.Millisecond, Patience: time.Minute} // no peer counts as silent
		if unheard {
			o.Replicas.Patience = 2 * time.Second // long enough for a busy machine
		}
		m.dirs = append(m.dirs, o.ConfigDir)
	})
	m.planes = append(m.planes, p)
	return p
}

// caller is a sidecar that has the endpoints of cart, and ACKs them when the test says so.
type caller struct {
	t      *testing.T
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
	last   *discovery.DeltaDiscoveryResponse
}

const cartCluster = "outbound|80||cart.shop.svc.cluster.local"

// connectCaller returns a caller that was sent endpoints, and has not ACKed them.
func connectCaller(t *testing.T, conn *grpc.ClientConn, name, ip string, metadata map[string]any) *caller {
	t.Helper()
	ctx, cancel := context.WithCancel(await.Context(t))
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	c := &caller{t: t, stream: stream, cancel: cancel}
	node := &core.Node{Id: "sidecar~" + ip + "~" + name + ".shop~shop.svc.cluster.local"}
	node.Metadata, err = structpb.NewStruct(metadata)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	clusters, err := stream.Recv()
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.Endpoints.URL(), ResourceNamesSubscribe: []string{cartCluster, "outbound|80||safe.example.com"},
	}))
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: clusters.TypeUrl, ResponseNonce: clusters.Nonce}))
	return c
}

// receives returns the next endpoints of cart.
func (c *caller) receives(want ...string) {
	c.t.Helper()
	stop := time.AfterFunc(time.Minute, c.cancel) // a failure instead of a hang
	defer stop.Stop()
	r, err := c.stream.Recv()
	require.NoError(c.t, err)
	require.Equal(c.t, resource.Endpoints.URL(), r.TypeUrl)
	r.Resources = slices.DeleteFunc(r.Resources, func(r *discovery.Resource) bool { return r.Name != cartCluster })
	require.ElementsMatch(c.t, want, addressesIn(c.t, r))
	c.last = r
}

func (c *caller) ack() {
	c.t.Helper()
	require.NoError(c.t, c.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: c.last.TypeUrl, ResponseNonce: c.last.Nonce}))
}

const cartNode = "sidecar~10.1.1.1~cart-1.shop~shop.svc.cluster.local"

// askToLeave deregisters cart as its sidecar does.
func (p *identityPlane) askToLeave(wait time.Duration) <-chan agentapi.DeregisterResponse {
	p.t.Helper()
	conn, out := p.dial(p.must("cart-token")), make(chan agentapi.DeregisterResponse, 1)
	go func() {
		var a agentapi.DeregisterResponse
		q := agentapi.DeregisterRequest{Node: cartNode, Instance: "first", WaitMillis: wait.Milliseconds()}
		if err := conn.Invoke(context.Background(), agentapi.DeregisterMethod, &q, &a, grpc.ForceCodec(jsonCodec{})); err != nil {
			a.Lacking = []agentapi.LackingProxy{{Reason: err.Error()}}
		}
		out <- a
	}()
	return out
}

// TestDeregisterAsksAllControlPlanes checks that callers on other control planes are waited for, too.
func TestDeregisterAsksAllControlPlanes(t *testing.T) {
	m := newMesh(t)
	var callers []*caller
	for i, name := range []string{"web-1", "web-2", "web-3"} {
		p := m.add()
		c := connectCaller(t, p.dial(p.must("web-token")), name, "10.1.0."+string('1'+rune(i)), nil)
		c.receives("10.1.1.1", "10.1.1.2")
		c.ack()
		callers = append(callers, c)
	}
	answers := m.planes[2].askToLeave(time.Minute)
	for _, c := range callers {
		require.Empty(t, answers)
		c.receives("10.1.1.2")
		c.ack()
	}
	a := await.From(t, answers)
	require.Empty(t, a.Lacking)
	require.Equal(t, 3, a.ACKed)
	require.Equal(t, 2, a.Peers)
}

// TestDeregisterWithoutPeers is the counterexample: a control plane without peers answers while a caller on another one
// still has the endpoint.
func TestDeregisterWithoutPeers(t *testing.T) {
	m := newMesh(t)
	other := m.add()
	c := connectCaller(t, other.dial(other.must("web-token")), "web-1", "10.1.0.1", nil)
	c.receives("10.1.1.1", "10.1.1.2")
	c.ack()
	m.planes = nil
	a := <-m.add().askToLeave(time.Minute)
	require.Empty(t, a.Lacking)
	require.Zero(t, a.ACKed)
	require.Zero(t, a.Peers)
}

// unreached returns the addresses of a server that answers nothing until the test ends, and of none.
func unreached(t *testing.T) (silent, gone string) {
	t.Helper()
	says, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts, and nothing answers
	require.NoError(t, err)
	t.Cleanup(func() { says.Close() })
	return says.Addr().String(), "127.0.0.1:1"
}

// TestDeregisterNamesUnreachablePeers checks that a control plane without an answer is named, and that it does
// not delay the answers of others.
func TestDeregisterNamesUnreachablePeers(t *testing.T) {
	silent, gone := unreached(t)
	m := newMesh(t)
	m.add()
	p := m.add(silent, gone)
	a := <-p.askToLeave(time.Minute)
	require.Equal(t, 1, a.Peers)
	require.Equal(t, 1, a.LackCount, "an address that refuses connections does not count as a control plane")
	require.Equal(t, "all proxies of the control plane "+silent, a.Lacking[0].Proxy)
	require.Equal(t, "unknown", a.Lacking[0].Position)
	require.Contains(t, a.Lacking[0].Reason, "no answer for ")
	require.Less(t, a.TookMillis, 55_000.0, "there is a bound for that")
}

// TestDeregisterNamesAnImpostor checks that a listed control plane which cannot authenticate gets no request.
func TestDeregisterNamesAnImpostor(t *testing.T) {
	m := newMesh(t)
	own := m.add()
	web := own.must("web-token")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*web}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(context.Background()) // the other end closes it
			conn.Close()
		}
	})
	defer serving.Wait()
	defer ln.Close()
	a := <-m.add(ln.Addr().String()).askToLeave(time.Minute)
	require.Equal(t, 1, a.LackCount)
	require.Contains(t, a.Lacking[0].Proxy, ln.Addr().String())
	require.Contains(t, a.Lacking[0].Reason, "not authenticated as a control plane of this mesh")
}

// TestPeerMethodsNeedCertificates checks that methods of control planes are for control planes only.
func TestPeerMethodsNeedCertificates(t *testing.T) {
	p := newMesh(t).add()
	plain, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = plain.Close() }()
	methods := []string{drain.MethodForward, drain.MethodDrainNotices, drain.MethodReturned, peers.MethodHello, status.MethodReport}
	for _, method := range append(methods, slices.Collect(maps.Keys((&debug.PeerQueries{}).Methods()))...) {
		ask := func(conn *grpc.ClientConn) error {
			return conn.Invoke(t.Context(), method, &agentapi.DeregisterRequest{Node: cartNode, WaitMillis: 1000}, &agentapi.DeregisterResponse{}, grpc.ForceCodec(jsonCodec{}))
		}
		requireStatus(t, ask(p.dial()), codes.Unauthenticated, "has no certificate")
		requireStatus(t, ask(p.dial(p.must("cart-token"))), codes.PermissionDenied, "spiffe://cluster.local/ns/shop/sa/cart")
		requireStatus(t, ask(plain), codes.PermissionDenied, "not in plain text")
	}
}

// TestPlainPeers checks that control planes without TLS call each other in plain text.
func TestPlainPeers(t *testing.T) {
	first := options(t)
	other := start(t, first)
	second := options(t)
	second.ConfigDir, second.Absence = first.ConfigDir, time.Nanosecond
	second.Replicas = Replicas{Addresses: []string{other.xds}}
	p := start(t, second)
	subscribe(t, p.xds) // it has read its configuration
	conn, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	var a agentapi.DeregisterResponse
	q := agentapi.DeregisterRequest{Node: cartNode, WaitMillis: 60_000}
	require.NoError(t, conn.Invoke(t.Context(), agentapi.DeregisterMethod, &q, &a, grpc.ForceCodec(jsonCodec{})))
	require.Empty(t, a.Lacking)
	require.Equal(t, 1, a.Peers)
}

// TestStartsWithDrainNotices checks that a control plane which starts while a workload drains sends its
// proxies nothing older.
func TestStartsWithDrainNotices(t *testing.T) {
	m := newMesh(t)
	require.Empty(t, (<-m.add().askToLeave(time.Minute)).Lacking)
	p := m.add()
	c := connectCaller(t, p.dial(p.must("web-token")), "web-1", "10.1.0.1", nil)
	c.receives("10.1.1.2")
}

// TestReturnsOnAnotherControlPlane checks that a drained workload which starts again on another control plane gets
// calls from all proxies.
func TestReturnsOnAnotherControlPlane(t *testing.T) {
	m := newMesh(t)
	other := m.add()
	p := m.add()
	require.Empty(t, (<-p.askToLeave(time.Minute)).Lacking)
	c := connectCaller(t, p.dial(p.must("web-token")), "web-1", "10.1.0.1", nil)
	c.receives("10.1.1.2")
	c.ack()
	connectCaller(t, other.dial(other.must("cart-token")), "cart-1", "10.1.1.1", map[string]any{"MOONSAIL_INSTANCE": "second"})
	c.receives("10.1.1.1", "10.1.1.2")
}

// TestStays checks that a withdrawal on one control plane withdraws the notice on all.
func TestStays(t *testing.T) {
	m := newMesh(t)
	other := m.add()
	p := m.add()
	require.Empty(t, (<-p.askToLeave(time.Minute)).Lacking)
	c := connectCaller(t, other.dial(other.must("web-token")), "web-1", "10.1.0.1", nil)
	c.receives("10.1.1.2")
	c.ack()
	q := agentapi.DeregisterRequest{Node: cartNode, Instance: "first", Stay: true}
	require.NoError(t, p.dial(p.must("cart-token")).Invoke(t.Context(), agentapi.DeregisterMethod, &q, &agentapi.DeregisterResponse{}, grpc.ForceCodec(jsonCodec{})))
	c.receives("10.1.1.1", "10.1.1.2")
}
