package server

import (
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
	"google.golang.org/grpc/peer"

	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// transport is one stream of messages, in both directions. It is all that the rest of
// the package knows of gRPC.
type transport interface {
	// receive gives the next message; free gives its bytes back.
	receive() (b []byte, free func(), err error)
	// send may block if sendWindow bytes and more were sent that the peer has not
	// acknowledged by an answer, and then until the stream ends; else it does not.
	// Calls do not overlap.
	send(message) error
	context() context.Context
	peer() string
}

// sendWindow is what gRPC takes of a stream without blocking, in bytes (its write quota).
const sendWindow = 64 << 10

// sendMargin is for the framing of the messages that are counted.
const sendMargin = 1 << 10

// Windows are static: with a fixed size gRPC does not probe for the bandwidth, which
// costs two pings a change. Requests are small but for the first after a reconnect.
const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
	maxRequest       = 32 << 20
)

// GRPCOptions are what a grpc.Server needs to serve this service: its codec, and
// windows and limits that suit it. Other services on it are served as usual.
func GRPCOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2(protocodec.Name)}),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
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
		return m.parts, nil
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

const serviceName = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// Register adds the service to a grpc.Server that was made with GRPCOptions.
func (s *Server) Register(g *grpc.Server) {
	handler := func(p ledger.Protocol) grpc.StreamHandler {
		return func(_ any, g grpc.ServerStream) error { return s.serve(p, grpcTransport{g}) }
	}
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		Streams: []grpc.StreamDesc{
			{StreamName: "StreamAggregatedResources", Handler: handler(ledger.Sotw), ServerStreams: true, ClientStreams: true},
			{StreamName: "DeltaAggregatedResources", Handler: handler(ledger.Delta), ServerStreams: true, ClientStreams: true},
		},
		Metadata: "envoy/service/discovery/v3/ads.proto",
	}, nil)
}

type grpcTransport struct{ grpc.ServerStream }

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

func (t grpcTransport) send(m message) error { return t.SendMsg(m) }

func (t grpcTransport) context() context.Context { return t.Context() }

func (t grpcTransport) peer() string {
	if p, ok := peer.FromContext(t.Context()); ok {
		return p.Addr.String()
	}
	return ""
}
