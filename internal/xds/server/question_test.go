package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/await"
)

// TestUnauthorizedQuestions sends questions that look like acknowledgements. The caller is checked, and its connection keeps
// the limits for unauthenticated clients. On an answered stream they are acknowledgements.
func TestUnauthorizedQuestions(t *testing.T) { overEach(t, unauthorizedQuestions) }

func unauthorizedQuestions(t *testing.T, on Transport) {
	certificate, pool := pair(t)
	h := newHarness(t, on, Options{})
	var asked, trusted atomic.Int32
	port := Port{
		TLS:       &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		Authorize: func(context.Context, *Peer, *model.Proxy) error { return Unauthenticated("no proxies here") },
		Admit:     func(net.Addr) (func(), bool) { return sync.OnceFunc(func() { trusted.Add(1) }), true },
		Questions: func(ctx context.Context, _ *Question) (*Answer, error) {
			asked.Add(1)
			if PeerOf(ctx).Authorization != "Bearer root" {
				return nil, Denied("no")
			}
			return &Answer{Server: "this one"}, nil
		},
	}
	conn := h.serveAt(on, port, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	question := func(nonce string) *discoveryv3.DiscoveryRequest {
		return &discoveryv3.DiscoveryRequest{TypeUrl: QuestionType + "/syncz", ResponseNonce: nonce}
	}
	open := func(token string) discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
		ctx := metadata.AppendToOutgoingContext(await.Context(t), "authorization", token)
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		require.NoError(t, err)
		return st
	}
	for _, nonce := range []string{answerNonce, "", "2026-11-26"} {
		st := open("")
		require.NoError(t, st.Send(question(nonce)))
		_, err := st.Recv()
		require.Equal(t, codes.PermissionDenied, status.Code(err), "nonce %q: %v", nonce, err)
	}
	require.Zero(t, trusted.Load())
	if on == TransportHTTP2 { // grpc-go has no such limit
		long := question(answerNonce)
		long.VersionInfo = strings.Repeat("x", 100<<10)
		st := open("")
		_ = st.Send(long) // it may fail as the stream ends, with the status that Recv returns
		_, err := st.Recv()
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.ErrorContains(t, err, "the limit of an unauthenticated client is")
	}

	asked.Store(0)
	st := open("Bearer root")
	for _, nonce := range []string{answerNonce, "2026-11-26"} {
		require.NoError(t, st.Send(question(nonce)))
		a, err := st.Recv()
		require.NoError(t, err, "nonce %q", nonce)
		require.Equal(t, answerNonce, a.Nonce)
	}
	require.NoError(t, st.Send(question(answerNonce)))
	require.NoError(t, st.CloseSend())
	_, err := st.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.EqualValues(t, 2, asked.Load(), "acknowledgements ask nothing")
	if on == TransportHTTP2 {
		require.EqualValues(t, 1, trusted.Load())
	}
}
