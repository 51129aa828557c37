package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto" // registers the codec that rawCodec delegates to
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/base/connlimit"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// grpcTransport is a stream on grpc-go. The goroutine that serves it reads it.
type grpcTransport struct{ grpc.ServerStream }

// Window sizes are fixed: otherwise gRPC probes for the bandwidth, which costs two pings for each
// change. Requests are small, except the first one after a reconnect.
const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
	maxRequest       = 32 << 20
	maxStreams       = 100 // on a connection
)

// A connection without traffic for keepaliveTime is pinged, and the proxy has keepaliveTimeout to
// answer.
const (
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 20 * time.Second
)

// handshakeTimeout is for TLS and the prefaces of HTTP/2, as in package http2.
const handshakeTimeout = 10 * time.Second

// defaultGrace is the default of Options.ConnectionGrace, and Istio's value.
const defaultGrace = 10 * time.Second

func (o *Options) grace() time.Duration { return cmp.Or(o.ConnectionGrace, defaultGrace) }

// grpcOptions returns what a grpc.Server needs for this service: its codec, window sizes and
// limits. Other services on the server are not affected.
func (o *Options) grpcOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2(protocodec.Name)}),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.grace(),
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// rawCodec passes messages of this package as bytes, and all others to the usual codec.
type rawCodec struct{ encoding.CodecV2 }

// received is an encoded request. free returns its bytes.
type received struct {
	bytes []byte
	free  func()
}

// joined are buffers for requests that arrived in several frames: proxies that reconnect list
// everything that they have. gRPC's own pool zeroes its buffers, which costs as much as reading
// them.
var joined = sync.Pool{New: func() any { return new([]byte) }}

// take takes over a request.
func (r *received) take(data mem.BufferSlice) {
	if len(data) == 1 {
		b := data[0]
		b.Ref()
		r.bytes, r.free = b.ReadOnlyData(), b.Free
		return
	}
	own := joined.Get().(*[]byte)
	*own = slices.Grow((*own)[:0], data.Len())[:data.Len()]
	data.CopyTo(*own)
	r.bytes, r.free = *own, func() { joined.Put(own) }
}

// Marshal implements encoding.CodecV2.
func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(message); ok {
		parts := make(mem.BufferSlice, len(m))
		for i, b := range m {
			parts[i] = mem.SliceBuffer(b)
		}
		return parts, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*received); ok {
		r.take(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// The services and their methods.
const (
	serviceName = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	sotwMethod  = "StreamAggregatedResources"
	deltaMethod = "DeltaAggregatedResources"

	clusterServiceName = "envoy.service.cluster.v3.ClusterDiscoveryService"
	clustersMethod     = "DeltaClusters"
)

// register adds the service of a port to a grpc.Server that was made with grpcOptions.
func (s *Server) register(g *grpc.Server, port *Port) {
	handler := func(p ledger.Protocol, asked bool) grpc.StreamHandler {
		return func(_ any, g grpc.ServerStream) error { return s.pull(p, port, grpcTransport{g}, asked) }
	}
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		Streams: []grpc.StreamDesc{
			{StreamName: sotwMethod, Handler: handler(ledger.Sotw, false), ServerStreams: true, ClientStreams: true},
			{StreamName: deltaMethod, Handler: handler(ledger.Delta, false), ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, nil)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: clusterServiceName,
		Streams:     []grpc.StreamDesc{{StreamName: clustersMethod, Handler: handler(ledger.Delta, true), ServerStreams: true, ClientStreams: true}},
		Metadata:    "envoy/service/cluster/v3/cds.proto",
	}, nil)
	registerUnary(g, port.Methods)
}

// receive returns the next message; free returns its bytes.
func (t grpcTransport) receive() ([]byte, func(), error) {
	var r received
	if err := t.RecvMsg(&r); err != nil {
		return nil, nil, err
	}
	if r.free == nil {
		return nil, nil, fmt.Errorf("the gRPC server lacks this service's codec: use grpcOptions")
	}
	return r.bytes, r.free, nil
}

// send implements transport. gRPC keeps what it has not written.
func (t grpcTransport) send(messages []message) (kept bool, err error) {
	for _, m := range messages {
		if err := t.SendMsg(m); err != nil {
			return true, err
		}
	}
	return true, nil
}

// window is the size of gRPC's write quota of a stream.
func (t grpcTransport) window() int { return 64 << 10 }

func (t grpcTransport) pending() int { return 0 }

func (t grpcTransport) requestContext() (context.Context, context.CancelFunc) {
	return t.Context(), func() {}
}

func (t grpcTransport) peer() string { return t.caller().Address }

func (t grpcTransport) caller() *Peer { return grpcPeer(t.Context()) }

// grpcPortServer is a grpc.Server that ends the streams of the discovery service when it stops.
type grpcPortServer struct {
	*grpc.Server
	admit   func(net.Addr) (leave func(), ok bool) // nil: all
	leaving context.Context
	leave   context.CancelFunc
}

// statusWriter is a method of gRPC's transport that its interface lacks: it ends a stream from
// outside its handler. A read that waits for the context would end the stream with CANCELLED.
type statusWriter interface {
	WriteStatus(*status.Status) error
}

// intercept ends a stream when the server stops.
func (c *grpcPortServer) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if w, ok := grpc.ServerTransportStreamFromContext(ss.Context()).(statusWriter); ok {
		defer context.AfterFunc(c.leaving, func() {
			_ = w.WriteStatus(status.Convert(ending)) // an error means that the stream has ended
		})()
	}
	return handler(srv, ss)
}

// goAwayTime is how long a GOAWAY may take before streams end: gRPC does not report when it was sent.
const goAwayTime = 20 * time.Millisecond

// Serve implements PortServer.
func (c *grpcPortServer) Serve(l net.Listener) error {
	if c.admit != nil {
		l = connlimit.Admit(l, c.admit)
	}
	return c.Server.Serve(l)
}

// GracefulStop implements PortServer.
func (c *grpcPortServer) GracefulStop(ctx context.Context) {
	stopped := make(chan struct{})
	go func() { defer close(stopped); c.Server.GracefulStop() }()
	later := time.AfterFunc(goAwayTime, c.leave)
	defer later.Stop()
	select {
	case <-stopped:
	case <-ctx.Done():
	}
	c.Stop()
	<-stopped
}

// Stop implements PortServer.
func (c *grpcPortServer) Stop() {
	c.Server.Stop()
	c.leave()
}

// expiring closes connections of grpc-go when their peer's certificate expires, as package http2
// does. grpc-go checks a certificate only once.
type expiring struct {
	credentials.TransportCredentials
	grace time.Duration
}

// farthest is longer than any connection lives. Certificates that last longer count as certificates
// that do not expire: those end in the year 9999, beyond the range of time.Duration.
const farthest = 10 * 365 * 24 * time.Hour

// ServerHandshake implements credentials.TransportCredentials.
func (e expiring) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := e.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return conn, info, nil
	}
	if a, ok := raw.(*connlimit.Conn); ok && len(t.State.VerifiedChains) > 0 {
		a.Leave() // the limit is for peers that have not authenticated
	}
	left := time.Until(t.State.PeerCertificates[0].NotAfter)
	if left > farthest {
		return conn, info, nil
	}
	return expiringConn{conn, time.AfterFunc(left+e.grace, func() { _ = raw.Close() })}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (e expiring) Clone() credentials.TransportCredentials {
	return expiring{e.TransportCredentials.Clone(), e.grace}
}

// expiringConn stops its timer if the connection ends first.
type expiringConn struct {
	net.Conn
	timer *time.Timer
}

// Close implements net.Conn.
func (c expiringConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}

// grpcPeer returns the peer of a stream or call on grpc-go.
func grpcPeer(ctx context.Context) *Peer {
	out := &Peer{}
	if p, ok := peer.FromContext(ctx); ok {
		out.Address = p.Addr.String()
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			out.Certificates = t.State.PeerCertificates
		}
	}
	if v := metadata.ValueFromIncomingContext(ctx, "authorization"); len(v) > 0 {
		out.Authorization = v[len(v)-1]
	}
	return out
}
