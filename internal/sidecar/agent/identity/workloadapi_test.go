package identity

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/test/workloadapitest"
)

// svid returns a certificate with a SPIFFE ID.
func svid(t *testing.T, r *catest.Root, id string) *tls.Certificate {
	t.Helper()
	pair, err := r.Pair(time.Hour, []string{id}, nil)
	require.NoError(t, err)
	return pair
}

func bundle(roots ...*catest.Root) []*x509.Certificate {
	var out []*x509.Certificate
	for _, r := range roots {
		out = append(out, r.Cert)
	}
	return out
}

func workloadAPI(t *testing.T, a workloadapitest.Answer) (*workloadapitest.Server, Options) {
	t.Helper()
	server := workloadapitest.Run(t, a)
	o := options(t, &catest.Server{}, root(t, "unused"))
	o.Address, o.TokenFile, o.RootsFile, o.WorkloadAPI = "", "", "", server.Address
	return server, o
}

func TestCertificatesOfTheWorkloadAPI(t *testing.T) {
	one, two := root(t, "one"), root(t, "two")
	first := svid(t, one, shopWeb)
	server, o := workloadAPI(t, workloadapitest.Answer{
		Identities: []*tls.Certificate{svid(t, one, "spiffe://mesh.test/ns/shop/sa/other"), first},
		Bundles:    map[string][]*x509.Certificate{"mesh.test": bundle(one)},
	})
	o.OutputDir = filepath.Join(t.TempDir(), "out")
	renewer := run(t, o)
	s := await(t, renewer, "a certificate", issued)
	require.Equal(t, first.Leaf.Raw, s.Leaf().Raw, "of this workload, although it is not the default one")
	require.Equal(t, string(one.PEM()), string(s.Roots))
	require.Empty(t, s.Federated)
	require.NoError(t, renewer.Problem())
	require.Equal(t, "the Workload API at "+server.Address, renewer.State().From)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(o.OutputDir, rootFile)); return err == nil }, patience, time.Millisecond)

	next := svid(t, two, shopWeb)
	server.Set(workloadapitest.Answer{Identities: []*tls.Certificate{next}, Bundles: map[string][]*x509.Certificate{"mesh.test": bundle(two, one)}})
	s = await(t, renewer, "the next certificate and both roots", func(s *Secrets) bool { return s.Leaf().Equal(next.Leaf) })
	require.Equal(t, string(two.PEM())+string(one.PEM()), string(s.Roots))
}

func TestFederatedTrustDomains(t *testing.T) {
	one, partner := root(t, "one"), root(t, "partner")
	own := svid(t, one, shopWeb)
	server, o := workloadAPI(t, workloadapitest.Answer{
		Identities: []*tls.Certificate{own},
		Bundles:    map[string][]*x509.Certificate{"mesh.test": bundle(one), "partner.test": bundle(partner)},
	})
	renewer := run(t, o)
	s := await(t, renewer, "a certificate", issued)
	require.Equal(t, string(one.PEM()), string(s.Roots), "those of the own trust domain only")
	require.Equal(t, "mesh.test", s.TrustDomain)
	require.Equal(t, []Bundle{{TrustDomain: "partner.test", Roots: partner.PEM()}}, s.Federated)

	server.Set(workloadapitest.Answer{Identities: []*tls.Certificate{own}, Bundles: map[string][]*x509.Certificate{"mesh.test": bundle(one)}})
	await(t, renewer, "the end of the federation", func(s *Secrets) bool { return len(s.Federated) == 0 })
}

func TestWorkloadAPIWithoutThisWorkload(t *testing.T) {
	one := root(t, "one")
	bundles := map[string][]*x509.Certificate{"mesh.test": bundle(one)}
	for _, test := range []struct {
		name    string
		answer  workloadapitest.Answer
		problem string
	}{
		{"not registered", workloadapitest.Answer{}, "it has no identity for this process: register the workload there"},
		{
			"another identity", workloadapitest.Answer{Identities: []*tls.Certificate{svid(t, one, "spiffe://mesh.test/ns/shop/sa/other")}, Bundles: bundles},
			"the certificate is for spiffe://mesh.test/ns/shop/sa/other, but this workload has namespace shop and service account web: " +
				"register it there as spiffe://TRUST-DOMAIN/ns/shop/sa/web",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, o := workloadAPI(t, test.answer)
			renewer := run(t, o)
			require.Eventually(t, func() bool { return renewer.State().Problem != "" }, patience, time.Millisecond)
			require.ErrorContains(t, renewer.Problem(), test.problem)
			server.Set(workloadapitest.Answer{Identities: []*tls.Certificate{svid(t, one, shopWeb)}, Bundles: bundles})
			await(t, renewer, "a certificate after the registration", issued)
			require.NoError(t, renewer.Problem())
		})
	}
}

// An agent of SPIRE that restarts takes no certificate away.
func TestWorkloadAPIAway(t *testing.T) {
	one := root(t, "one")
	dir := t.TempDir()
	answer := workloadapitest.Answer{Identities: []*tls.Certificate{svid(t, one, shopWeb)}, Bundles: map[string][]*x509.Certificate{"mesh.test": bundle(one)}}
	server, stop, err := workloadapitest.Start(dir, answer)
	require.NoError(t, err)
	o := options(t, &catest.Server{}, one)
	o.RootsFile, o.WorkloadAPI = "", server.Address
	renewer := run(t, o)
	first := await(t, renewer, "a certificate", issued)
	stop()
	require.Eventually(t, func() bool { return renewer.State().Problem != "" }, patience, time.Millisecond)
	still, _ := renewer.Secrets()
	require.Equal(t, first, still)

	next := svid(t, one, shopWeb)
	answer.Identities = []*tls.Certificate{next}
	_, stop, err = workloadapitest.Start(dir, answer)
	require.NoError(t, err)
	t.Cleanup(stop)
	await(t, renewer, "the next certificate", func(s *Secrets) bool { return s.Leaf().Equal(next.Leaf) })
	require.Empty(t, renewer.State().Problem)
}
