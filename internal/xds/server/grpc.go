package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto" // registers the codec that ours hands on to
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// grpcTransport is a stream on grpc-go, which is read by whoever serves it.
type grpcTransport struct{ grpc.ServerStream }

// Windows are static: with a fixed size gRPC does not probe for the bandwidth, which
// costs two pings a change. Requests are small but for the first after a reconnect.
const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
	maxRequest       = 32 << 20
	maxStreams       = 100 // on a connection
)

// A proxy that says nothing for so long is asked whether it is there, and has so long to
// answer.
const (
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 20 * time.Second
)

// defaultGrace is that of Options.ConnectionGrace, as Istio's.
const defaultGrace = 10 * time.Second

func (o *Options) grace() time.Duration { return cmp.Or(o.ConnectionGrace, defaultGrace) }

// grpcOptions are what a grpc.Server needs to serve this service: its codec, and
// windows and limits that suit it. Other services on it are served as usual.
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

// rawCodec passes messages of this package through as bytes and leaves all others to
// the usual codec.
type rawCodec struct{ encoding.CodecV2 }

// received is a request as it came. free gives its bytes back.
type received struct {
	bytes []byte
	free  func()
}

// joined are buffers for requests that came in several frames: those of proxies that
// reconnect list all that they hold. gRPC's own pool zeroes what it hands out, which costs
// as much as reading it.
var joined = sync.Pool{New: func() any { return new([]byte) }}

// take takes a request over.
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

// The service and its methods.
const (
	serviceName = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	sotwMethod  = "StreamAggregatedResources"
	deltaMethod = "DeltaAggregatedResources"
)

// register adds a port's service to a grpc.Server that was made with grpcOptions.
func (s *Server) register(g *grpc.Server, port *Port) {
	handler := func(p ledger.Protocol) grpc.StreamHandler {
		return func(_ any, g grpc.ServerStream) error { return s.pull(p, port, grpcTransport{g}) }
	}
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		Streams: []grpc.StreamDesc{
			{StreamName: sotwMethod, Handler: handler(ledger.Sotw), ServerStreams: true, ClientStreams: true},
			{StreamName: deltaMethod, Handler: handler(ledger.Delta), ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, nil)
	registerUnary(g, port.Methods)
}

// receive gives the next message; free gives its bytes back.
func (t grpcTransport) receive() ([]byte, func(), error) {
	var r received
	if err := t.RecvMsg(&r); err != nil {
		return nil, nil, err
	}
	if r.free == nil {
		return nil, nil, fmt.Errorf("the gRPC server was made without this service's codec")
	}
	return r.bytes, r.free, nil
}

// send implements transport. gRPC keeps what it has yet to write.
func (t grpcTransport) send(messages []message) (kept bool, err error) {
	for _, m := range messages {
		if err := t.SendMsg(m); err != nil {
			return true, err
		}
	}
	return true, nil
}

// window is gRPC's write quota of a stream.
func (t grpcTransport) window() int { return 64 << 10 }

func (t grpcTransport) pending() int { return 0 }

func (t grpcTransport) present() (context.Context, context.CancelFunc) { return t.Context(), func() {} }

func (t grpcTransport) peer() string { return t.caller().Address }

func (t grpcTransport) caller() *Peer { return grpcPeer(t.Context()) }
