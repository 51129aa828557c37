package server

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/http2"
)

// Unary is a method with one request and one answer, both as bytes. It owns the bytes of the
// request. Its errors are gRPC statuses. It must end when its context does.
type Unary func(ctx context.Context, request []byte) ([]byte, error)

// registerUnary adds methods to a grpc.Server.
func registerUnary(g *grpc.Server, methods map[string]Unary) {
	services := map[string]*grpc.ServiceDesc{}
	for path, method := range methods {
		service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if services[service] == nil {
			services[service] = &grpc.ServiceDesc{ServiceName: service}
		}
		services[service].Methods = append(services[service].Methods, grpc.MethodDesc{MethodName: name, Handler: grpcUnary(method)})
	}
	for _, d := range services {
		g.RegisterService(d, nil)
	}
}

// grpcUnary answers calls on grpc-go.
func grpcUnary(method Unary) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var r received
		if err := decode(&r); err != nil {
			return nil, err
		}
		request := slices.Clone(r.bytes)
		if r.free != nil {
			r.free()
		}
		answer, err := method(WithPeer(ctx, grpcPeer(ctx)), request)
		return message{answer}, err
	}
}

// unaryStream answers one call on package http2, in a goroutine.
type unaryStream struct {
	stream  *http2.Stream
	method  Unary
	ctx     context.Context
	cancel  context.CancelFunc
	request []byte
	whole   bool // request has arrived
}

func newUnaryStream(h *http2.Stream, method Unary) *unaryStream {
	u := &unaryStream{stream: h, method: method}
	u.ctx, u.cancel = context.WithCancel(WithPeer(h.Context(), http2Peer(h)))
	return u
}

// Receive implements http2.Receiver.
func (u *unaryStream) Receive(b []byte) error {
	if u.whole {
		return http2Status(Invalid("%s takes one message", u.stream.Path()))
	}
	u.request, u.whole = slices.Clone(b), true
	return u.stream.Keep(len(b))
}

// RemoteClosed implements http2.Finisher.
func (u *unaryStream) RemoteClosed() {
	if !u.whole {
		u.stream.Finish(http2Status(Invalid("%s takes one message", u.stream.Path())))
		u.cancel()
		return
	}
	u.stream.Go(func() {
		defer u.cancel()
		answer, err := u.method(u.ctx, u.request)
		if err == nil {
			err = u.stream.Send([][]byte{answer})
		}
		u.stream.Finish(http2Status(err))
	})
}

// End implements http2.Receiver: the caller has disconnected.
func (u *unaryStream) End() { u.cancel() }

// Invalid returns the error of a Unary for an invalid request.
func Invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Refused returns the error for something that must not be done now.
func Refused(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

// Unavailable returns the error for something that may be retried.
func Unavailable(format string, args ...any) error {
	return status.Errorf(codes.Unavailable, format, args...)
}

// Exhausted returns the error for a caller that has reached its limit.
func Exhausted(format string, args ...any) error {
	return status.Errorf(codes.ResourceExhausted, format, args...)
}

// Unauthenticated returns the error for a caller without valid credentials.
func Unauthenticated(format string, args ...any) error {
	return status.Errorf(codes.Unauthenticated, format, args...)
}

// Denied returns the error for a caller that may not do this.
func Denied(format string, args ...any) error {
	return status.Errorf(codes.PermissionDenied, format, args...)
}
