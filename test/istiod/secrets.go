package istiod

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/test/meshtest"
)

// secretsOf returns the Secrets that the case's objects name and it does not have. Without them istiod opens no listener, and
// nothing could be compared.
func secretsOf(t *testing.T, k *testCase) []*unstructured.Unstructured {
	t.Helper()
	have := map[[2]string]bool{}
	for _, o := range k.documents {
		if o.GetKind() == "Secret" {
			have[[2]string{o.GetNamespace(), o.GetName()}] = true
		}
	}
	var out []*unstructured.Unstructured
	add := func(ns, name string) {
		if at := [2]string{ns, name}; name != "" && !strings.Contains(name, "://") && !have[at] {
			have[at] = true
			out = append(out, secret(t, ns, name))
		}
	}
	for _, o := range k.documents {
		switch o.GetKind() {
		case "Gateway", "ListenerSet", "DestinationRule", "Sidecar":
			visit(o.Object, func(m map[string]any) { addSecrets(m, o.GetNamespace(), k.proxies, add) })
		}
	}
	return out
}

// addSecrets adds the Secrets that a part of an object names. Those of Istio's kinds are in the namespaces of the proxies.
func addSecrets(m map[string]any, ns string, proxies []*meshtest.Proxy, add func(ns, name string)) {
	for _, field := range []string{"certificateRefs", "clientCertificateRef"} {
		refs, _ := m[field].([]any)
		if ref, ok := m[field].(map[string]any); ok {
			refs = []any{ref}
		}
		for _, e := range refs {
			if ref, _ := e.(map[string]any); text(ref["kind"], "Secret") == "Secret" {
				add(text(ref["namespace"], ns), text(ref["name"], ""))
			}
		}
	}
	names, _ := m["credentialNames"].([]any)
	for _, name := range append(names, m["credentialName"]) {
		for _, p := range proxies {
			add(p.Namespace, text(name, ""))
		}
	}
}

// secret returns a Secret with a certificate, its key, and CAs.
func secret(t *testing.T, ns, name string) *unstructured.Unstructured {
	files := rootFiles(t)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": ns}, "type": string(corev1.SecretTypeTLS),
		"stringData": map[string]any{
			corev1.TLSCertKey: string(files[ca.CertFile]), corev1.TLSPrivateKeyKey: string(files[ca.KeyFile]), corev1.ServiceAccountRootCAKey: string(files[ca.RootFile]),
		},
	}}
}

// rootFiles creates a root that signs certificates of workloads itself.
func rootFiles(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"interoperability"}}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return map[string][]byte{
		ca.CertFile: root, ca.ChainFile: root, ca.RootFile: root,
		ca.KeyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
	}
}
