package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1alpha1 "istio.io/api/security/v1alpha1"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

const ownersYAML = `
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.0.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart}}
spec: {serviceAccountName: cart}
status: {podIP: 10.1.1.1, phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-2, namespace: shop, labels: {app: cart}}
spec: {serviceAccountName: cart}
status: {podIP: 10.1.1.2, phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: vault, namespace: bank}
spec: {serviceAccountName: teller}
status: {podIP: 10.1.1.9, phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: safe, namespace: bank}
spec: {hosts: [safe.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.9.9.9}]}
`

// identityPlane is a control plane with identities.
type identityPlane struct {
	*plane
	t      *testing.T
	secure string
	roots  *x509.CertPool
	caDir  string
}

func startWithIdentities(t *testing.T, transport server.Transport) *identityPlane {
	t.Helper()
	return startIdentities(t, filepath.Join(t.TempDir(), "ca"), func(o *Options) { o.Transport = transport })
}

// startIdentities starts a control plane with a given authority, which several may share.
func startIdentities(t *testing.T, caDir string, change func(*Options)) *identityPlane {
	t.Helper()
	o, addr := options(t), make(chan string, 1)
	require.NoError(t, os.WriteFile(filepath.Join(o.ConfigDir, "shop.yaml"), []byte(ownersYAML), 0o600))
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("web-token,shop,web\ncart-token,shop,cart\nteller-token,bank,teller\n"), 0o600))
	p := &identityPlane{t: t, caDir: caDir}
	o.Absence = time.Nanosecond
	o.Identity = Identity{Addr: "127.0.0.1:0", CADir: p.caDir, TokenFile: tokens, ReadEvery: 10 * time.Millisecond,
		Listening: func(a net.Addr) { addr <- a.String() }}
	change(&o)
	p.plane = start(t, o)
	p.secure = await.From(t, addr)
	p.trust()
	return p
}

// trust reads the roots that clients believe.
func (p *identityPlane) trust() {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.caDir, "root-cert.pem"))
	require.NoError(p.t, err)
	p.roots = x509.NewCertPool()
	require.True(p.t, p.roots.AppendCertsFromPEM(b))
}

// dial connects by the name of istiod, with the certificates that are given.
func (p *identityPlane) dial(certificates ...*tls.Certificate) *grpc.ClientConn {
	p.t.Helper()
	conf := &tls.Config{RootCAs: p.roots, ServerName: "istiod.istio-system.svc", MinVersion: tls.VersionTLS12}
	if len(certificates) > 0 {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificates[0], nil }
	}
	conn, err := grpc.NewClient(p.secure, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask requests a certificate; an empty token is not sent.
func (p *identityPlane) ask(conn *grpc.ClientConn, token string, change func(*securityv1alpha1.IstioCertificateRequest)) (*tls.Certificate, error) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(p.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"bank.example.com"}}, key)
	require.NoError(p.t, err)
	q := &securityv1alpha1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}
	if change != nil {
		change(q)
	}
	ctx := p.t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	a, err := securityv1alpha1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &tls.Certificate{PrivateKey: key}
	for _, c := range a.CertChain[:len(a.CertChain)-1] {
		block, _ := pem.Decode([]byte(c))
		out.Certificate = append(out.Certificate, block.Bytes)
	}
	out.Leaf, err = x509.ParseCertificate(out.Certificate[0])
	require.NoError(p.t, err)
	return out, nil
}

func (p *identityPlane) must(token string) *tls.Certificate {
	p.t.Helper()
	c, err := p.ask(p.dial(), token, nil)
	require.NoError(p.t, err)
	return c
}

// proxy opens a stream as a proxy and waits for its clusters.
func (p *identityPlane) proxy(conn *grpc.ClientConn, ns, account string) error {
	p.t.Helper()
	return p.proxyNamed(conn, "web-1."+ns, account, "")
}

// proxyNamed is proxy with a node ID's "name.namespace", and with another name in the metadata unless that
// is empty.
func (p *identityPlane) proxyNamed(conn *grpc.ClientConn, id, account, name string) error {
	p.t.Helper()
	ctx, cancel := context.WithCancel(await.Context(p.t))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := &core.Node{Id: "sidecar~10.1.0.1~" + id + "~shop.svc.cluster.local"}
	node.Metadata, err = structpb.NewStruct(map[string]any{"SERVICE_ACCOUNT": account, "NAME": name})
	require.NoError(p.t, err)
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()})
	_, err = stream.Recv()
	return err
}

func requireStatus(t *testing.T, err error, code codes.Code, says ...string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%v", err)
	for _, s := range says {
		require.Contains(t, status.Convert(err).Message(), s)
	}
}

func overEach(t *testing.T, test func(*testing.T, server.Transport)) {
	for _, transport := range []server.Transport{server.TransportGRPC, server.TransportHTTP2} {
		t.Run(string(transport), func(t *testing.T) { test(t, transport) })
	}
}
