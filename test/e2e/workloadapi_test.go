package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/workloadapitest"
)

// spireLike is an authority beside the control plane. Each process of the mesh has a Workload API of its own, because the
// real one knows processes apart.
type spireLike struct {
	t       *testing.T
	apis    map[string]*workloadapitest.Server // by SPIFFE ID
	bundles map[string][]*x509.Certificate
	signer  *catest.Root
}

// api starts a Workload API that gives one identity.
func (i *spireLike) api(id string) string {
	i.t.Helper()
	i.apis[id] = workloadapitest.Run(i.t, i.answer(id))
	return i.apis[id].Address
}

func (i *spireLike) answer(id string) workloadapitest.Answer {
	i.t.Helper()
	var names []string
	if strings.HasSuffix(id, "/sa/istiod") {
		names = []string{"istiod.istio-system.svc"}
	}
	c, err := i.signer.Pair(time.Hour, []string{id}, names)
	require.NoError(i.t, err)
	return workloadapitest.Answer{Identities: []*tls.Certificate{c}, Bundles: i.bundles}
}

// renew gives every process another certificate, and the present roots.
func (i *spireLike) renew() {
	for id, s := range i.apis {
		s.Set(i.answer(id))
	}
}

// startIssued starts a mutual whose certificates come from Workload APIs, control plane included.
func startIssued(t *testing.T, i *spireLike, config ...string) *mutual {
	t.Helper()
	m := &mutual{client: newMember("client"), server: newMember("server"), plain: startApp(t, "plain", "v1"), root: i.signer}
	m.server.applications(t)
	addr := make(chan string, 1)
	m.mesh = startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
		o.Mesh.AnyTrustDomain = true
		o.Identity = controlplane.Identity{Addr: "127.0.0.1:0",
			External:  controlplane.ExternalAuthority{WorkloadAPI: i.api("spiffe://cluster.local/ns/istio-system/sa/istiod")},
			Listening: func(a net.Addr) { addr <- a.String() }}
	}, m.config("server", config...)...)
	m.secure = await.From(t, addr)
	for _, w := range []*member{m.client, m.server} {
		c := w.config(t, m, "")
		c.XDS.RootCert, c.CA = "", agent.CA{WorkloadAPI: i.api(spiffeID(w.name))}
		w.run(t, c)
	}
	for _, w := range []*member{m.client, m.server} {
		eventually(t, w.name+" is ready", func() bool { return strings.Contains(w.log.String(), "sidecar ready") },
			func() string { return w.log.String() + describe(m.proxies()) })
	}
	return m
}

// TestMeshOfAWorkloadAPI checks a mesh in which neither the control plane nor an agent signs: mutual TLS, the change of
// the root, and callers of a federated trust domain.
func TestMeshOfAWorkloadAPI(t *testing.T) {
	first, second, partner := spireRoot(t, "first"), spireRoot(t, "second"), spireRoot(t, "partner")
	i := &spireLike{t: t, apis: map[string]*workloadapitest.Server{}, signer: first, bundles: map[string][]*x509.Certificate{
		"cluster.local": {first.Cert}, "partner.test": {partner.Cert},
	}}
	strict := peerAuthentication("STRICT")
	m := startIssued(t, i, strict)
	m.requireMutual(spiffeID("client"))
	m.requireNothingHeld()

	const visitor = "spiffe://partner.test/ns/shop/sa/visitor"
	status, err := m.handshake(m.pair(partner, visitor))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "a caller of the federated trust domain")
	_, err = m.handshake(m.pair(partner, spiffeID("client")))
	require.Error(t, err, "the partner's authority issues no identities of this mesh")
	_, err = m.handshake(m.pair(spireRoot(t, "stranger"), visitor))
	require.Error(t, err, "of an unknown authority")

	m.apply(m.config("server", strict, fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: visitors, namespace: shop}
spec: {action: DENY, rules: [{from: [{source: {principals: [%q]}}]}]}`, strings.TrimPrefix(visitor, "spiffe://")))...)
	m.requireStatus(http.StatusForbidden, "policies know the caller", func() (int, string) {
		status, err := m.handshake(m.pair(partner, visitor))
		return status, fmt.Sprint(err)
	})

	i.bundles = map[string][]*x509.Certificate{"cluster.local": {second.Cert, first.Cert}}
	i.renew() // all trust both roots, and the federation ends
	eventually(t, "the partner is a stranger", func() bool { _, err := m.handshake(m.pair(partner, visitor)); return err != nil }, nil)
	i.signer = second
	i.renew()
	i.bundles = map[string][]*x509.Certificate{"cluster.local": {second.Cert}}
	i.renew()
	eventually(t, "the first root is gone", func() bool { _, err := m.handshake(m.pair(first, spiffeID("client"))); return err != nil }, nil)
	m.requireMutual(spiffeID("client"))
	m.requireNothingHeld()
}

func spireRoot(t *testing.T, name string) *catest.Root {
	t.Helper()
	r, err := catest.NewRoot(name)
	require.NoError(t, err)
	return r
}
