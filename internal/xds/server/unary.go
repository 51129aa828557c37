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

// Unary is a method beside the discovery service: one request, one answer, both as bytes.
// The bytes of the request are its own. Its errors are gRPC's statuses. It must end when its
// context does.
type Unary func(ctx context.Context, request []byte) ([]byte, error)

// registerUnary adds the methods to a grpc.Server.
func (s *Server) registerUnary(g *grpc.Server) {
	services := map[string]*grpc.ServiceDesc{}
	for path, method := range s.opts.Methods {
		service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if services[service] == nil {
			services[service] = &grpc.ServiceDesc{ServiceName: service}
		}
		services[service].Methods = append(services[service].Methods, grpc.MethodDesc{
			MethodName: name,
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var r received
				if err := decode(&r); err != nil {
					return nil, err
				}
				request := slices.Clone(r.bytes)
				if r.free != nil {
					r.free()
				}
				answer, err := method(ctx, request)
				return message{parts: [][]byte{answer}}, err
			},
		})
	}
	for _, d := range services {
		g.RegisterService(d, nil)
	}
}

// unaryStream answers one call on package http2. While the method runs nothing else of the
// connection is read: callers have a connection of their own.
type unaryStream struct {
	stream *http2.Stream
	method Unary
}

// Receive implements http2.Receiver.
func (u unaryStream) Receive(b []byte) error {
	answer, err := u.method(u.stream.Context(), slices.Clone(b))
	if err != nil {
		s := status.Convert(err)
		return &http2.Status{Code: http2.Code(s.Code()), Message: s.Message()}
	}
	return u.stream.Send([][]byte{answer})
}

// End implements http2.Receiver.
func (unaryStream) End() {}

// Invalid is the error of a Unary for a request that is wrong.
func Invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Refused is that for what must not be done.
func Refused(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

// Unavailable is that for what may be tried again.
func Unavailable(format string, args ...any) error {
	return status.Errorf(codes.Unavailable, format, args...)
}
