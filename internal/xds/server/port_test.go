package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// pair makes a certificate for both sides.
func pair(t *testing.T) (certificate tls.Certificate, pool *x509.CertPool) {
	t.Helper()
	return pairUntil(t, time.Now().Add(time.Hour))
}

func pairUntil(t *testing.T, end time.Time) (certificate tls.Certificate, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "both"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: c}, pool
}

// textCodec is a codec of strings.
type textCodec struct{}

func (textCodec) Name() string { return "text" }
func (textCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*string))}, nil
}
func (textCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*string) = string(b.Materialize())
	return nil
}

// serveAt serves a harness's server at another port, and connects to it.
func (h *harness) serveAt(on Transport, port Port, client *tls.Config) *grpc.ClientConn {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(h.t, err)
	server, done := h.servePort(on, port, l)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(client)))
	require.NoError(h.t, err)
	h.t.Cleanup(func() {
		_ = conn.Close()
		await.End(h.t, server.Stop)
		await.From(h.t, done)
	})
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, method, in string) (string, error) {
	var out string
	err := conn.Invoke(ctx, method, &in, &out, grpc.ForceCodecV2(textCodec{}))
	return out, err
}

// TestPortMethods: calls know their peer, run concurrently, and notice the end of their caller.
// A port's methods override those of all ports.
func TestPortMethods(t *testing.T) { overEach(t, portMethods) }

func portMethods(t *testing.T, on Transport) {
	certificate, pool := pair(t)
	held, gone := make(chan struct{}), make(chan struct{})
	h := newHarness(t, on, Options{Methods: map[string]Unary{
		"/t.S/Who":  func(context.Context, []byte) ([]byte, error) { return nil, Refused("not this one") },
		"/t.S/Fail": func(_ context.Context, b []byte) ([]byte, error) { return nil, Denied("%s may not", b) },
	}})
	port := Port{
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		Methods: map[string]Unary{
			"/t.S/Who": func(ctx context.Context, b []byte) ([]byte, error) {
				p := PeerOf(ctx)
				name := "unknown"
				if len(p.Certificates) > 0 {
					name = p.Certificates[0].Subject.CommonName
				}
				require.NotEmpty(t, p.Address)
				return []byte(string(b) + " " + name + " " + p.Authorization), nil
			},
			"/t.S/Hold": func(ctx context.Context, _ []byte) ([]byte, error) {
				close(held)
				<-ctx.Done()
				close(gone)
				return nil, Unavailable("late")
			},
		},
	}
	client := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	conn := h.serveAt(on, port, client)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := call(ctx, conn, "/t.S/Hold", ""); ended <- err }()
	await.From(t, held)
	out, err := call(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer x"), conn, "/t.S/Who", "it is")
	require.NoError(t, err, "while another call is held")
	require.Equal(t, "it is unknown Bearer x", out)
	cancel()
	await.From(t, gone)
	require.Equal(t, codes.Canceled, status.Code(await.From(t, ended)))

	_, err = call(t.Context(), conn, "/t.S/Fail", "you")
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.Equal(t, "you may not", status.Convert(err).Message())

	client = client.Clone()
	client.Certificates = []tls.Certificate{certificate}
	out, err = call(t.Context(), h.serveAt(on, port, client), "/t.S/Who", "it is")
	require.NoError(t, err)
	require.Equal(t, "it is both ", out)
}

// TestPortAdmits: a connection counts until its peer shows a certificate, or until it ends. Others are closed if there is no room.
func TestPortAdmits(t *testing.T) { overEach(t, portAdmits) }

func portAdmits(t *testing.T, on Transport) {
	certificate, pool := pair(t)
	h := newHarness(t, on, Options{})
	room, changed := make(chan struct{}, 1), make(chan string, 10)
	port := Port{
		TLS:       &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		Authorize: func(context.Context, *Peer, *model.Proxy) error { return nil },
		Methods:   map[string]Unary{"/t.S/Hi": func(context.Context, []byte) ([]byte, error) { return []byte("hi"), nil }},
		Admit: func(net.Addr) (func(), bool) {
			select {
			case room <- struct{}{}:
				changed <- "in"
				return sync.OnceFunc(func() { <-room; changed <- "out" }), true
			default:
				changed <- "refused"
				return nil, false
			}
		},
	}
	client := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	conn := h.serveAt(on, port, client)
	out, err := call(t.Context(), conn, "/t.S/Hi", "")
	require.NoError(t, err)
	require.Equal(t, "hi", out)
	require.Equal(t, "in", await.From(t, changed))
	require.Equal(t, "out", await.From(t, changed), "its peer has a certificate")

	silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", conn.Target())
	require.NoError(t, err)
	require.Equal(t, "in", await.From(t, changed))
	second, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", conn.Target())
	require.NoError(t, err)
	require.Equal(t, "refused", await.From(t, changed))
	_, err = second.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, silent.Close())
	require.Equal(t, "out", await.From(t, changed), "it has ended")
}

// TestPortAuthorizes: a port decides whether a peer is the proxy of its node, and may complete the
// node.
func TestPortAuthorizes(t *testing.T) { overEach(t, portAuthorizes) }

func portAuthorizes(t *testing.T, on Transport) {
	certificate, pool := pair(t)
	h := newHarness(t, on, Options{})
	port := Port{
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Authorize: func(_ context.Context, peer *Peer, p *model.Proxy) error {
			if p.Namespace != "shop" {
				return Denied("%s is not of shop", p)
			}
			require.NotEmpty(t, peer.Address)
			p.ServiceAccount = "known"
			return nil
		},
	}
	conn := h.serveAt(on, port, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	open := func(ns string) error {
		ctx, cancel := context.WithCancel(await.Context(t))
		defer cancel()
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		require.NoError(t, err)
		require.NoError(t, st.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: "sidecar~10.0.0.1~web." + ns + "~" + ns + ".svc.cluster.local"}, TypeUrl: resource.Cluster.URL()}))
		_, err = st.Recv()
		return err
	}
	h.commit(edsCluster("a", "1"))
	require.NoError(t, open("shop"))
	err := open("bank")
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.Equal(t, "web.bank is not of shop", status.Convert(err).Message())
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(t, h.proxies, 1, "a refused proxy is not bound")
	require.Equal(t, "known", h.proxies[0].ServiceAccount)
}

// TestDisconnectWhileBinding: if a proxy disconnects while its tables are computed, the computation ends.
func TestDisconnectWhileBinding(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.loading = make(chan context.Context)
		c := h.connect("")
		require.NoError(t, c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: resource.ClusterURL}))
		present := await.From(t, h.loading)
		require.NoError(t, present.Err())
		c.cancel()
		await.From(t, present.Done())
	})
}
