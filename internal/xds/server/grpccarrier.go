package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// grpcCarrier is a grpc.Server whose streams of the discovery service end with it.
type grpcCarrier struct {
	*grpc.Server
	leaving context.Context
	leave   context.CancelFunc
}

// statusWriter is what gRPC's transport has beside its interface: it ends a stream from outside
// its handler. A read that waits for the context instead would end it with CANCELLED.
type statusWriter interface {
	WriteStatus(*status.Status) error
}

// intercept has a stream end with the carrier.
func (c *grpcCarrier) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if w, ok := grpc.ServerTransportStreamFromContext(ss.Context()).(statusWriter); ok {
		defer context.AfterFunc(c.leaving, func() {
			_ = w.WriteStatus(status.Convert(ending)) // where it fails the stream has ended
		})()
	}
	return handler(srv, ss)
}

// told is what GOAWAY has to go out before streams end: gRPC does not say when it has.
const told = 20 * time.Millisecond

// GracefulStop implements Carrier.
func (c *grpcCarrier) GracefulStop(ctx context.Context) {
	stopped := make(chan struct{})
	go func() { defer close(stopped); c.Server.GracefulStop() }()
	later := time.AfterFunc(told, c.leave)
	defer later.Stop()
	select {
	case <-stopped:
	case <-ctx.Done():
	}
	c.Stop()
	<-stopped
}

// Stop implements Carrier.
func (c *grpcCarrier) Stop() {
	c.Server.Stop()
	c.leave()
}
