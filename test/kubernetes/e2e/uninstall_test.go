package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestUninstall removes what all tests before used, compares all objects with those before the installation, and does the
// same with an installation by Helm.
func TestUninstall(t *testing.T) {
	if len(before) == 0 {
		t.Skip("another process installed the control plane (E2E_CLUSTER)")
	}
	awaitNamespaces(t)
	if _, err := moonsail(t.Context(), "uninstall", "--purge", "--yes"); err != nil {
		t.Fatal(err)
	}
	requireObjects(t, time.Minute, func(string) bool { return false })
	t.Run("Helm", func(t *testing.T) {
		requireFull(t)
		testHelm(t)
	})
	if err := install(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// awaitNamespaces waits until the namespaces of earlier tests are deleted.
func awaitNamespaces(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		for _, n := range get[corev1.NamespaceList](t, "namespaces").Items {
			if !before["v1 Namespace "+n.Name] && n.Name != "istio-system" {
				return fmt.Errorf("namespace %s is %s: %v", n.Name, n.Status.Phase, n.Status.Conditions)
			}
		}
		return nil
	})
}

// testHelm installs with helm as docs/install.md does, calls, and uninstalls.
func testHelm(t *testing.T) {
	helm(t, "install", "base", chart("base"), "-n", "istio-system", "--create-namespace")
	helm(t, "install", "moonsail", chart("moonsail"), "-n", "istio-system", "--set", "image="+image, "--wait", "--timeout=2m")
	t.Run("calls", func(t *testing.T) {
		ns := namespace(t)
		apply(t, ns, echoYAML)
		rollout(t, ns, "deployment/echo")
		l := startLoad(t, ns, "", clients)
		time.Sleep(2 * time.Second)
		l.requireNone("after the installation by Helm")
	})
	awaitNamespaces(t)
	helm(t, "uninstall", "moonsail", "base", "-n", "istio-system", "--wait")
	requireObjects(t, time.Minute, remains)
	kubectl(t, "delete", "namespace", "istio-system")
	kubectl(t, "delete", "configmaps", "--all-namespaces", "--field-selector=metadata.name=istio-ca-root-cert")
	var definitions []string
	for name := range strings.FieldsSeq(kubectl(t, "get", "crds", "-o", "name")) {
		if !before["apiextensions.k8s.io/v1 CustomResourceDefinition "+strings.TrimPrefix(name, "customresourcedefinition.apiextensions.k8s.io/")] {
			definitions = append(definitions, name)
		}
	}
	kubectl(t, append([]string{"delete"}, definitions...)...)
	requireObjects(t, time.Minute, func(string) bool { return false })
}

// remains reports whether an object remains after an uninstallation by Helm, as docs/install.md describes.
func remains(object string) bool {
	kind, name, _ := strings.Cut(strings.TrimPrefix(object, "v1 "), " ")
	switch kind {
	case "apiextensions.k8s.io/v1", "gateway.networking.k8s.io/v1":
		return strings.HasPrefix(name, "CustomResourceDefinition ") || strings.HasPrefix(name, "GatewayClass ")
	case "apiregistration.k8s.io/v1":
		return strings.HasSuffix(name, ".istio.io") || strings.HasSuffix(name, ".gateway.networking.k8s.io")
	case "coordination.k8s.io/v1":
		return strings.HasPrefix(name, "Lease istio-system/moonsail-")
	case "ConfigMap":
		return strings.HasSuffix(name, "/istio-ca-root-cert") || name == "istio-system/kube-root-ca.crt"
	case "Secret":
		return name == "istio-system/istio-ca-secret"
	case "Namespace":
		return name == "istio-system"
	case "ServiceAccount":
		return name == "istio-system/default"
	}
	return false
}
