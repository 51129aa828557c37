package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/atomicfile"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/security/certpem"
)

// root is a certificate authority as an operator provides it.
type root struct {
	cert *x509.Certificate
	key  []byte // in PEM
}

// rootTTL is the lifetime of a root, longer than any run.
const rootTTL = 24 * time.Hour

func newRoot(name string) (*root, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(rootTTL),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &root{cert: cert, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, nil
}

// textOf returns certificates in PEM.
func textOf(roots ...*root) []byte {
	out := make([]*x509.Certificate, len(roots))
	for i, r := range roots {
		out[i] = r.cert
	}
	return certpem.Encode(out...)
}

// firstRoot makes the root that a run begins with, and gives it to the control planes before they start.
func (r *run) firstRoot(ctx context.Context) (err error) {
	if r.mesh.root, err = newRoot("root 1"); err != nil {
		return err
	}
	if err := os.MkdirAll(r.mesh.path("ca"), 0o755); err != nil { //nolint:gosec // it holds no secrets of others
		return err
	}
	return await(ctx, startTime, "the mesh's root", func(ctx context.Context) error {
		return r.writeAuthority(ctx, r.mesh.root, r.mesh.root)
	})
}

// writeAuthority writes the authority that signs and the roots that workloads trust to where control planes read them.
func (r *run) writeAuthority(ctx context.Context, signer *root, roots ...*root) error {
	if r.mesh.cluster != nil {
		return r.place.put(ctx, "", secretObject(signer, textOf(roots...)))
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{ca.RootFile, textOf(roots...)}, {ca.CertFile, textOf(signer)}, {ca.KeyFile, signer.key}} {
		if err := atomicfile.Write(r.mesh.path("ca", f.name), f.text); err != nil {
			return err
		}
	}
	return nil
}

// secretObject returns Istio's Secret with an operator's authority.
func secretObject(signer *root, roots []byte) string {
	encode := base64.StdEncoding.EncodeToString
	return systemNamespace + separator + fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: cacerts, namespace: istio-system}
data: {%s: %s, %s: %s, %s: %s}`, ca.CertFile, encode(textOf(signer)), ca.KeyFile, encode(signer.key), ca.RootFile, encode(roots))
}

const systemNamespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}"

// mountRoots writes the roots to the file that sidecars read, as a kubelet does: from the ConfigMap that a control plane
// keeps. In a mesh of files it is the operator's own file.
func (r *run) mountRoots(ctx context.Context, want []byte) error {
	if r.mesh.cluster == nil {
		return nil
	}
	text, err := r.mesh.cluster.roots(ctx)
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) != strings.TrimSpace(string(want)) {
		return errors.New("ConfigMap istio-ca-root-cert: has other roots")
	}
	return atomicfile.Write(r.mesh.path("ca", ca.RootFile), []byte(text))
}

// rotateTime bounds a step of a rotation. Sidecars renew their certificates within half of certTTL, but faults may keep
// them from it for a while.
const rotateTime = 4 * time.Minute

// rotate replaces the mesh's root in the three steps of docs/upgrade.md. No request may fail meanwhile.
func (r *run) rotate(ctx context.Context, e *event) error {
	was := r.mesh.root
	next, err := newRoot("root of " + time.Since(r.began).Round(time.Second).String())
	if err != nil {
		return err
	}
	for i, step := range []struct {
		signer *root
		trust  []*root
	}{{was, []*root{was, next}}, {next, []*root{was, next}}, {next, []*root{next}}} {
		began := time.Now()
		if err := until(ctx, func(ctx context.Context) error { return r.writeAuthority(ctx, step.signer, step.trust...) }); err != nil {
			return err
		}
		r.mesh.root = step.signer
		mounted := false
		err := await(ctx, rotateTime, fmt.Sprintf("step %d of the rotation", i+1), func(ctx context.Context) error {
			if !mounted {
				if err := r.mountRoots(ctx, textOf(step.trust...)); err != nil {
					return err
				}
				mounted = true
			}
			return r.rotated(ctx, step.signer, step.trust)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.found(violation{At: time.Now(), Kind: "stale", Subject: "roots", Text: err.Error()})
			return nil
		}
		e.effect("step %d reached all sidecars after %.0f s", i+1, time.Since(began).Seconds())
	}
	return nil
}

// rotated returns nil if all Envoys have a certificate of signer, and trust just these roots.
func (r *run) rotated(ctx context.Context, signer *root, trust []*root) error {
	for _, s := range r.mesh.sidecars {
		chain, roots, err := s.secrets(ctx)
		if err != nil {
			return err
		}
		if err := chain[0].CheckSignatureFrom(signer.cert); err != nil {
			return fmt.Errorf("%s: has a certificate of %s", s.name, chain[0].Issuer)
		}
		if !sameRoots(roots, trust) {
			return fmt.Errorf("%s: trusts %d roots, and should trust %d others", s.name, len(roots), len(trust))
		}
	}
	return nil
}

// sameRoots compares sets of certificates.
func sameRoots(have []*x509.Certificate, want []*root) bool {
	if len(have) != len(want) {
		return false
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, w.cert.Equal) {
			return false
		}
	}
	return true
}

// secrets returns the certificates with which a sidecar's Envoy proves its identity, and those that it trusts.
func (s *sidecar) secrets(ctx context.Context) (chain, roots []*x509.Certificate, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	text, err := s.admin.ConfigDump(ctx, url.Values{"resource": {"dynamic_active_secrets"}})
	if err != nil {
		return nil, nil, err
	}
	type source struct {
		Bytes []byte `json:"inline_bytes"`
	}
	var dump struct {
		Configs []struct {
			Secret struct {
				Certificate struct {
					Chain source `json:"certificate_chain"`
				} `json:"tls_certificate"`
				Validation struct {
					Trusted source `json:"trusted_ca"`
				} `json:"validation_context"`
			} `json:"secret"`
		} `json:"configs"`
	}
	if err := json.Unmarshal(text, &dump); err != nil {
		return nil, nil, fmt.Errorf("%s: secrets of Envoy: %w", s.name, err)
	}
	for _, c := range dump.Configs {
		// A secret has one of the two, and Decode returns none of the other, with an error.
		own, _ := certpem.Decode(c.Secret.Certificate.Chain.Bytes)
		trusted, _ := certpem.Decode(c.Secret.Validation.Trusted.Bytes)
		chain, roots = append(chain, own...), append(roots, trusted...)
	}
	if len(chain) == 0 {
		return nil, nil, fmt.Errorf("%s: Envoy has no certificate", s.name)
	}
	return chain, roots, nil
}
