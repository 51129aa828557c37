package istiod

import (
	"strings"
	"testing"

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
