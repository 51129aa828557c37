package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// shortLived makes certificates of a namespace last for a minute, so that sidecars renew them each half minute.
const shortLived = `
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: short-lived}
spec: {environmentVariables: {SECRET_TTL: 60s}}
`

// TestCertificates renews certificates of workloads under traffic. No call may fail.
func TestCertificates(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, shortLived)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "", clients)
	for range renewals {
		had := identities(t, ns)
		eventually(t, 2*time.Minute, func() error {
			return allIdentities(t, ns, func(pod string, i identity) error {
				if bytes.Equal(i.leaf.Raw, had[pod].leaf.Raw) {
					return fmt.Errorf("the certificate is still valid until %s", i.leaf.NotAfter)
				}
				return nil
			})
		})
	}
	l.requireNone(fmt.Sprintf("%d renewals of each certificate", renewals))
	t.Run("root", func(t *testing.T) {
		requireFull(t)
		l.reset()
		testRoot(t, ns, l)
	})
}

// renewals is the number of renewals that TestCertificates waits for. One takes half a minute.
const renewals = 1

// testRoot replaces the root of the mesh as docs/upgrade.md describes.
func testRoot(t *testing.T, ns string, l *load) {
	old := presentAuthority(t)
	next := newAuthority(t)
	began := time.Now()
	steps := []struct {
		what      string
		authority authority
		done      func(identity) error
	}{
		{"both roots", authority{cert: old.cert, key: old.key, chain: old.chain, roots: append(bytes.Clone(old.roots), next.roots...)}, requireRoots(2)},
		{"new authority", authority{cert: next.cert, key: next.key, chain: next.chain, roots: append(bytes.Clone(old.roots), next.roots...)}, requireIssuer(t, next)},
		{"only the new root", next, requireRoots(1)},
	}
	for _, step := range steps {
		step.authority.provide(t)
		eventually(t, 3*time.Minute, func() error {
			return allIdentities(t, ns, func(_ string, i identity) error { return step.done(i) })
		})
		t.Logf("%.0f s: %s", time.Since(began).Seconds(), step.what)
		l.requireNone("replacement of the root: " + step.what)
	}
	kubectl(t, "-n", ns, "rollout", "restart", "deployment/echo")
	rollout(t, ns, "deployment/echo")
	awaitEnded(t, ns, "app=echo")
	l.requireNone("rolling restart with the new root")
}

// identity is what a sidecar has.
type identity struct {
	leaf  *x509.Certificate
	roots []*x509.Certificate
}

// identities reads the certificates of each sidecar from Envoy.
func identities(t *testing.T, ns string) map[string]identity {
	t.Helper()
	out := map[string]identity{}
	for pod, container := range containers(t, ns) {
		text := kubectl(t, "-n", ns, "exec", pod, "-c", container, "--", "/app", "get", "http://127.0.0.1:15000/config_dump?resource=dynamic_active_secrets")
		type inline struct {
			Bytes []byte `json:"inline_bytes"`
		}
		var dump struct {
			Configs []struct {
				Secret struct {
					TLS struct {
						Chain inline `json:"certificate_chain"`
					} `json:"tls_certificate"`
					Validation struct {
						CA inline `json:"trusted_ca"`
					} `json:"validation_context"`
				} `json:"secret"`
			} `json:"configs"`
		}
		if err := json.Unmarshal([]byte(text), &dump); err != nil {
			t.Fatalf("secrets of Pod %s: %v", pod, err)
		}
		var i identity
		for _, c := range dump.Configs {
			if chain := certificates(t, c.Secret.TLS.Chain.Bytes); len(chain) > 0 {
				i.leaf = chain[0]
			}
			i.roots = append(i.roots, certificates(t, c.Secret.Validation.CA.Bytes)...)
		}
		if i.leaf == nil || len(i.roots) == 0 {
			t.Fatalf("Pod %s has no certificate, or no root: %s", pod, text)
		}
		out[pod] = i
	}
	return out
}

// allIdentities returns the first error of check.
func allIdentities(t *testing.T, ns string, check func(pod string, i identity) error) error {
	t.Helper()
	for pod, i := range identities(t, ns) {
		if err := check(pod, i); err != nil {
			return fmt.Errorf("Pod %s: %w", pod, err)
		}
	}
	return nil
}

func requireRoots(n int) func(identity) error {
	return func(i identity) error {
		if len(i.roots) != n {
			return fmt.Errorf("%d roots: expected %d", len(i.roots), n)
		}
		return nil
	}
}

func requireIssuer(t *testing.T, a authority) func(identity) error {
	t.Helper()
	issuer := certificates(t, a.cert)[0]
	return func(i identity) error {
		return i.leaf.CheckSignatureFrom(issuer)
	}
}

// certificates decodes PEM.
func certificates(t *testing.T, text []byte) []*x509.Certificate {
	t.Helper()
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// authority is the content of the Secret cacerts, in PEM.
type authority struct{ cert, key, chain, roots []byte }

// presentAuthority reads the authority of the mesh.
func presentAuthority(t *testing.T) authority {
	t.Helper()
	for _, s := range get[corev1.SecretList](t, "-n", "istio-system", "secrets").Items {
		if s.Name == "istio-ca-secret" || s.Name == "cacerts" {
			a := authority{cert: s.Data["ca-cert.pem"], key: s.Data["ca-key.pem"], chain: s.Data["cert-chain.pem"], roots: s.Data["root-cert.pem"]}
			if len(a.roots) == 0 {
				a.roots = a.cert
			}
			if s.Name == "cacerts" || len(get[corev1.SecretList](t, "-n", "istio-system", "secrets", "--field-selector=metadata.name=cacerts").Items) == 0 {
				return a
			}
		}
	}
	t.Fatal("the mesh has no authority")
	return authority{}
}

// newAuthority makes a root that signs certificates of workloads itself.
func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "next root", Organization: []string{"test"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	return authority{cert: text, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), chain: text, roots: text}
}

// provide writes the Secret cacerts.
func (a authority) provide(t *testing.T) {
	t.Helper()
	secret := corev1.Secret{Data: map[string][]byte{"ca-cert.pem": a.cert, "ca-key.pem": a.key, "cert-chain.pem": a.chain, "root-cert.pem": a.roots}}
	secret.APIVersion, secret.Kind, secret.Name = "v1", "Secret", "cacerts"
	text, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, "istio-system", string(text))
}
