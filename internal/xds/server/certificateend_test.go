package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// opened opens a stream and receives its clusters, within a bounded time.
func opened(t *testing.T, conn *grpc.ClientConn) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*testTimeout)
	t.Cleanup(cancel)
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	_ = st.Send(&discoveryv3.DeltaDiscoveryRequest{ // if it fails, receiving fails
		Node: &corev3.Node{Id: nodeID}, TypeUrl: resource.Cluster.URL(), ResourceNamesSubscribe: []string{"*"}})
	m, err := st.Recv()
	if err != nil {
		return nil, err
	}
	return st, st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
}

// inTime repeats a test of streams that end soon with more time, until the time suffices to open
// them.
func inTime(t *testing.T, enough time.Duration, try func(time.Duration) error) {
	t.Helper()
	for ; enough < testTimeout; enough *= 2 {
		err := try(enough)
		if err == nil {
			return
		}
		t.Log(enough, "was not enough:", err)
	}
	require.Fail(t, "the streams end too early")
}

// requireOver waits for the end of a stream. Package http2 gives the reason.
func requireOver(t *testing.T, on Transport, st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, why string) {
	t.Helper()
	over := make(chan error, 1)
	go func() { _, err := st.Recv(); over <- err }()
	select {
	case err := <-over:
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		if on == TransportHTTP2 {
			require.ErrorContains(t, err, why)
		}
	case <-time.After(2 * testTimeout):
		require.Fail(t, "the stream continues")
	}
}

// TestStreamsEndWithCertificates: a stream ends when its peer's certificate expires, and no other
// stream is affected. A certificate may have no end (RFC 5280, 4.1.2.5).
func TestStreamsEndWithCertificates(t *testing.T) { overEach(t, streamsEndWithCertificates) }

func streamsEndWithCertificates(t *testing.T, on Transport) {
	t.Parallel() // it mostly waits
	own, pool := pair(t)
	h := newHarness(t, on, Options{ConnectionGrace: 10 * time.Millisecond})
	h.commit(edsCluster("a", "1"))
	dial := func(c tls.Certificate, clients *x509.CertPool) *grpc.ClientConn {
		port := Port{TLS: &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}}
		return h.serveAt(on, port, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12})
	}
	lasting, err := opened(t, dial(own, pool))
	require.NoError(t, err)
	endless, err := opened(t, dial(pairUntil(t, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))))
	require.NoError(t, err)
	inTime(t, 4*time.Second, func(life time.Duration) error {
		short, shorts := pairUntil(t, time.Now().Add(life))
		ending, err := opened(t, dial(short, shorts))
		if err != nil {
			return err
		}
		requireOver(t, on, ending, "certificate")
		require.True(t, time.Now().After(short.Leaf.NotAfter), "not before the certificate")
		return nil
	})
	h.commit(edsCluster("b", "1"))
	_, err = lasting.Recv()
	require.NoError(t, err)
	_, err = endless.Recv()
	require.NoError(t, err)
}

// TestStreamsEndWithAge: old connections end, and new ones are accepted.
func TestStreamsEndWithAge(t *testing.T) { overEach(t, streamsEndWithAge) }

func streamsEndWithAge(t *testing.T, on Transport) {
	t.Parallel() // it mostly waits
	own, pool := pair(t)
	inTime(t, time.Second, func(age time.Duration) error {
		h := newHarness(t, on, Options{MaxConnectionAge: age, ConnectionGrace: 10 * time.Millisecond})
		h.commit(edsCluster("a", "1"))
		conn := h.serveAt(on, Port{TLS: &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}},
			&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
		for range 2 {
			st, err := opened(t, conn)
			if err != nil {
				return err
			}
			requireOver(t, on, st, "old")
		}
		return nil
	})
}
