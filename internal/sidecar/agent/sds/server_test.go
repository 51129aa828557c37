package sds

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a Source with secrets that a test sets.
type source struct {
	mu      sync.Mutex // guards the fields below
	secrets *identity.Secrets
	changed chan struct{}
}

func (s *source) Secrets() (*identity.Secrets, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets, s.changed
}

func (s *source) set(next *identity.Secrets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = next
	close(s.changed)
	s.changed = make(chan struct{})
}

func start(t *testing.T) (*source, secretv3.SecretDiscoveryServiceClient) {
	t.Helper()
	src := &source{secrets: &identity.Secrets{}, changed: make(chan struct{})}
	dir, err := os.MkdirTemp("", "sds")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	server, err := Start(t.Context(), dir, src, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(server.Close)
	for path, mode := range map[string]os.FileMode{SocketPath(dir): 0o600, filepath.Dir(SocketPath(dir)): 0o700} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	conn, err := grpc.NewClient("unix://"+SocketPath(dir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return src, secretv3.NewSecretDiscoveryServiceClient(conn)
}

func receive(t *testing.T, stream secretv3.SecretDiscoveryService_StreamSecretsClient) (*discoveryv3.DiscoveryResponse, map[string]*tlsv3.Secret) {
	t.Helper()
	resp, err := stream.Recv()
	require.NoError(t, err)
	out := map[string]*tlsv3.Secret{}
	for _, r := range resp.Resources {
		s := &tlsv3.Secret{}
		require.NoError(t, r.UnmarshalTo(s))
		out[s.Name] = s
	}
	return resp, out
}

func TestSecretsAreSentWhenTheyAreThere(t *testing.T) {
	src, client := start(t)
	ctx, cancel := context.WithCancel(await.Context(t))
	defer cancel()
	stream, err := client.StreamSecrets(ctx)
	require.NoError(t, err)
	ask := func(nonce string, e *status.Status, names ...string) {
		require.NoError(t, stream.Send(&discoveryv3.DiscoveryRequest{ResourceNames: names, ResponseNonce: nonce, ErrorDetail: e}))
	}
	ask("", nil, CertificateName, RootsName, "kubernetes://x")
	src.set(&identity.Secrets{Roots: []byte("roots")})
	first, got := receive(t, stream)
	require.Len(t, got, 1, "only the roots exist")
	require.Equal(t, "roots", string(got[RootsName].GetValidationContext().TrustedCa.GetInlineBytes()))
	ask(first.Nonce, nil, CertificateName, RootsName, "kubernetes://x")

	src.set(&identity.Secrets{Chain: []byte("chain"), Key: []byte("key"), Roots: []byte("roots")})
	second, got := receive(t, stream)
	require.Len(t, got, 2)
	require.Equal(t, "chain", string(got[CertificateName].GetTlsCertificate().CertificateChain.GetInlineBytes()))
	require.Equal(t, "key", string(got[CertificateName].GetTlsCertificate().PrivateKey.GetInlineBytes()))
	require.NotEqual(t, first.VersionInfo, second.VersionInfo)

	// A stale ACK is ignored, the same version is not sent again after a NACK, and new names are answered at once.
	ask(first.Nonce, nil, RootsName)
	ask(second.Nonce, &status.Status{Message: "bad"}, CertificateName, RootsName, "kubernetes://x")
	ask(second.Nonce, nil, CertificateName)
	third, got := receive(t, stream)
	require.Len(t, got, 1)
	require.Contains(t, got, CertificateName)

	// A subscription to the certificate alone does not get new roots.
	src.set(&identity.Secrets{Chain: []byte("chain"), Key: []byte("key"), Roots: []byte("others")})
	src.set(&identity.Secrets{Chain: []byte("renewed"), Key: []byte("key2"), Roots: []byte("others")})
	fourth, got := receive(t, stream)
	require.Equal(t, "renewed", string(got[CertificateName].GetTlsCertificate().CertificateChain.GetInlineBytes()))
	require.NotEqual(t, third.VersionInfo, fourth.VersionInfo)
}

func TestStartErrors(t *testing.T) {
	_, err := Start(t.Context(), "/"+strings.Repeat("x", 110), &source{}, nil, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "--work-dir")
	require.ErrorContains(t, err, "longer than 107 characters")
	_, err = Start(t.Context(), "/dev/null", &source{}, nil, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "--work-dir")
}

// TestStaleSocket starts with the socket of a killed agent.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Dir(SocketPath(dir)), 0o755))
	require.NoError(t, os.WriteFile(SocketPath(dir), nil, 0o644))
	server, err := Start(t.Context(), dir, &source{secrets: &identity.Secrets{}}, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	server.Close()
}
