package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
	"github.com/moonsail/moonsail/test/workloadapitest"
)

const controlPlaneID = "spiffe://cluster.local/ns/istio-system/sa/istiod"

func newRoot(t *testing.T, name string) *catest.Root {
	t.Helper()
	r, err := catest.NewRoot(name)
	require.NoError(t, err)
	return r
}

// issue returns a certificate of root for a SPIFFE ID, and for the names of control planes if it is theirs.
func issue(t *testing.T, root *catest.Root, id string) *tls.Certificate {
	t.Helper()
	var names []string
	if id == controlPlaneID {
		names = []string{"istiod.istio-system.svc"}
	}
	c, err := root.Pair(time.Hour, []string{id}, names)
	require.NoError(t, err)
	return c
}

func poolOf(roots ...*catest.Root) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r.Cert)
	}
	return pool
}

// externalPlane is a control plane without a signing key.
type externalPlane struct {
	identityPlane
	log logtext.Buffer
}

// startExternal starts a control plane whose certificate comes from elsewhere.
func startExternal(t *testing.T, from ExternalAuthority, trusted *x509.CertPool, peers ...string) *externalPlane {
	t.Helper()
	o, addr := options(t), make(chan string, 1)
	require.NoError(t, os.WriteFile(filepath.Join(o.ConfigDir, "shop.yaml"), []byte(ownersYAML), 0o600))
	o.Identity = Identity{Addr: "127.0.0.1:0", External: from, ReadEvery: 10 * time.Millisecond, Listening: func(a net.Addr) { addr <- a.String() }}
	o.Replicas = Replicas{Addresses: peers, Every: 20 * time.Millisecond, Patience: time.Minute}
	p := &externalPlane{identityPlane: identityPlane{t: t, roots: trusted}}
	o.Log = slog.New(slog.NewTextHandler(&p.log, nil))
	p.plane = start(t, o)
	p.secure = await.From(t, addr)
	return p
}

// page returns a page of the control plane's debug server.
func (p *externalPlane) page(path string) string {
	p.t.Helper()
	t := p.t
	resp, err := http.Get("http://" + p.http + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// answers reports whether the one peer answers.
func (p *externalPlane) answers() bool {
	return strings.Contains(p.page("/metrics"), `moonsail_control_planes{state="answering"} 1`)
}

// TestControlPlaneWithoutSigningKey checks a mesh whose certificates the Workload API issues.
func TestControlPlaneWithoutSigningKey(t *testing.T) {
	root, partner := newRoot(t, "one"), newRoot(t, "partner")
	answer := workloadapitest.Answer{
		Identities: []*tls.Certificate{issue(t, root, controlPlaneID)},
		Bundles:    map[string][]*x509.Certificate{"cluster.local": {root.Cert}, "partner.test": {partner.Cert}},
	}
	api := workloadapitest.Run(t, answer)
	p := startExternal(t, ExternalAuthority{WorkloadAPI: api.Address}, poolOf(root))

	web := issue(t, root, "spiffe://cluster.local/ns/shop/sa/web")
	require.NoError(t, p.proxy(p.dial(web), "shop", "web"))
	requireStatus(t, p.proxy(p.dial(web), "bank", ""), codes.PermissionDenied, `"shop"`, `"bank"`)
	_, err := p.ask(p.dial(web), "", nil)
	requireStatus(t, err, codes.Unimplemented)
	foreign := issue(t, partner, "spiffe://cluster.local/ns/shop/sa/web")
	requireStatus(t, p.proxy(p.dial(foreign), "shop", "web"), codes.Unavailable) // a federated authority cannot issue identities of this mesh

	require.Contains(t, p.page("/debug/ca"), `"external": true`)
	require.Contains(t, p.page("/debug/ca"), api.Address)

	next := newRoot(t, "two")
	answer.Identities[0], answer.Bundles["cluster.local"] = issue(t, next, controlPlaneID), []*x509.Certificate{next.Cert, root.Cert}
	api.Set(answer)
	p.roots = poolOf(next)
	require.Eventually(t, func() bool { return p.proxy(p.dial(web), "shop", "web") == nil }, time.Minute, 10*time.Millisecond,
		"the control plane shows the next certificate, and still accepts those of the first root")
}

func TestPeersWithoutSigningKey(t *testing.T) {
	root := newRoot(t, "one")
	bundles := map[string][]*x509.Certificate{"cluster.local": {root.Cert}}
	api := workloadapitest.Run(t, workloadapitest.Answer{Identities: []*tls.Certificate{issue(t, root, controlPlaneID)}, Bundles: bundles})
	first := startExternal(t, ExternalAuthority{WorkloadAPI: api.Address}, poolOf(root))
	second := startExternal(t, ExternalAuthority{WorkloadAPI: api.Address}, poolOf(root), first.secure)
	require.Eventually(t, func() bool { return second.answers() }, time.Minute, 10*time.Millisecond)

	other := workloadapitest.Run(t, workloadapitest.Answer{Identities: []*tls.Certificate{issue(t, root, "spiffe://cluster.local/ns/shop/sa/istiod")}, Bundles: bundles})
	intruder := startExternal(t, ExternalAuthority{WorkloadAPI: other.Address}, poolOf(root), first.secure)
	require.Eventually(t, func() bool { return strings.Contains(intruder.log.String(), "only control planes may call this") }, time.Minute, 10*time.Millisecond)
	require.False(t, intruder.answers())
}

// TestCertificateInFiles checks the files that istio-csr's certificate has in a Pod.
func TestCertificateInFiles(t *testing.T) {
	root, dir := newRoot(t, "one"), t.TempDir()
	from := ExternalAuthority{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), RootFile: filepath.Join(dir, "ca.crt")}
	write := func(c *tls.Certificate, root *catest.Root) {
		key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(from.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
		require.NoError(t, os.WriteFile(from.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o600))
		require.NoError(t, os.WriteFile(from.RootFile, root.PEM(), 0o600))
	}
	write(issue(t, root, controlPlaneID), root)
	p := startExternal(t, from, poolOf(root))
	web := issue(t, root, "spiffe://cluster.local/ns/shop/sa/web")
	require.NoError(t, p.proxy(p.dial(web), "shop", "web"))

	require.NoError(t, os.WriteFile(from.RootFile, []byte("nothing"), 0o600))
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), from.RootFile+": no certificate in PEM") }, time.Minute, 10*time.Millisecond)
	require.NoError(t, p.proxy(p.dial(web), "shop", "web"), "the last valid roots stay")

	next := newRoot(t, "two")
	write(issue(t, next, controlPlaneID), next)
	p.roots = poolOf(next)
	require.Eventually(t, func() bool {
		return p.proxy(p.dial(issue(t, next, "spiffe://cluster.local/ns/shop/sa/web")), "shop", "web") == nil
	}, time.Minute, 10*time.Millisecond)
	requireStatus(t, p.proxy(p.dial(web), "shop", "web"), codes.Unavailable) // of the first root
}
