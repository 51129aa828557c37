package http2

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // so that the client can compress
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// text is a codec of strings.
type text struct{}

func (text) Name() string { return "text" }
func (text) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*string))}, nil
}
func (text) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*string) = string(b.Materialize())
	return nil
}

var _ encoding.CodecV2 = text{}

func (v *service) grpc(conf *tls.Config, more ...grpc.DialOption) *grpc.ClientConn {
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	c, err := grpc.NewClient("passthrough:///"+v.addr, append(more, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(text{}), grpc.MaxCallRecvMsgSize(64<<20)))...)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestGRPCClient: grpc-go's client in plain text and on TLS, with its own windows, which it adapts
// with pings, and with small ones.
func TestGRPCClient(t *testing.T) {
	conf := certificates(t)
	for name, c := range map[string]struct {
		tls  *tls.Config
		dial []grpc.DialOption
	}{
		"plain":         {},
		"TLS":           {tls: conf.client},
		"small windows": {dial: []grpc.DialOption{grpc.WithStaticStreamWindowSize(1 << 16), grpc.WithStaticConnWindowSize(1 << 16)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{}
			if c.tls != nil {
				o.TLS = conf.server
			}
			v := serve(t, o)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			st, err := v.grpc(c.tls, c.dial...).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, echo)
			require.NoError(t, err)
			for i, n := range []int{0, 1, 100, 16 << 10, 100_000, 3 << 20, 5} {
				sent, got := fmt.Sprintf("%d %s", i, long(n)), ""
				go func() { _ = st.SendMsg(&sent) }()
				require.NoError(t, st.RecvMsg(&got))
				require.Equal(t, sent, got)
			}
			require.NoError(t, st.CloseSend())
			require.Equal(t, io.EOF, st.RecvMsg(new(string)))
		})
	}
}

func TestGRPCUnary(t *testing.T) {
	v := serve(t, Options{MaxMessage: 1 << 20})
	c := v.grpc(nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the request has grpc-timeout
	defer cancel()
	in, out := "hello", ""
	require.NoError(t, c.Invoke(ctx, echo, &in, &out))
	require.Equal(t, in, out)

	in = "\x07not you: 100% ☹"
	err := c.Invoke(ctx, fail, &in, &out)
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.Equal(t, "not you: 100% ☹", status.Convert(err).Message())

	require.Equal(t, codes.Unimplemented, status.Code(c.Invoke(ctx, "/test.Service/None", &in, &out)))
	in = "compressed"
	require.Equal(t, codes.Unimplemented, status.Code(c.Invoke(ctx, echo, &in, &out, grpc.UseCompressor("gzip"))))
	in = long(1<<20 + 1)
	require.Equal(t, codes.ResourceExhausted, status.Code(c.Invoke(ctx, echo, &in, &out)))
}

// TestGRPCClientRetriesElsewhere: a client of a server that stops may try again.
func TestGRPCClientRetriesElsewhere(t *testing.T) {
	v := serve(t, Options{})
	st, err := v.grpc(nil).NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, hold)
	require.NoError(t, err)
	v.call(0)
	v.s.Stop()
	require.Equal(t, codes.Unavailable, status.Code(st.RecvMsg(new(string))))
}
