package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// nextImage is the image of the next version, whose chart base has another field in a resource definition (tools/next).
const (
	nextImage = "moonsail:e2e-next"
	nextDir   = "image-next"
)

// TestUpgrade upgrades the control plane by a version with a changed resource definition, and goes back, under traffic. No call
// may fail, and no sidecar may receive again what it has.
func TestUpgrade(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join(root, "dist", nextDir, "*-"+runtime.GOARCH+".tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("dist/%s has no image (%v): run make image-next", nextDir, err)
	}
	if err := testCluster.Load(t.Context(), archives...); err != nil {
		t.Fatal(err)
	}
	awaitDeletedNamespaces(t)
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "", clients)
	had := received(t, ns)
	for _, step := range []struct {
		what    string
		image   string
		command func() (string, error)
	}{
		{"upgrade", nextImage, func() (string, error) {
			return moonsailOf(t.Context(), nextDir, "upgrade", "--image", nextImage, "--yes")
		}},
		{"rollback", image, func() (string, error) { return moonsailOf(t.Context(), nextDir, "upgrade", "--rollback", "--yes") }},
	} {
		began := time.Now()
		out, err := step.command()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s took %.1f s: %s", step.what, time.Since(began).Seconds(), strings.TrimSpace(out))
		awaitEnded(t, "istio-system", "app.kubernetes.io/name=moonsail")
		for _, p := range pods(t, "istio-system", "app.kubernetes.io/name=moonsail") {
			if got := p.Spec.Containers[0].Image; got != step.image {
				t.Errorf("after %s Pod %s runs %s: expected %s", step.what, p.Name, got, step.image)
			}
		}
		awaitProxies(t, ns, 4)
		time.Sleep(2 * time.Second)
		l.requireNone(step.what + " of the control plane")
		l.reset()
		had.requireSame(t, received(t, ns), step.what)
	}
	out := kubectl(t, "get", "crd", "virtualservices.networking.istio.io", "-o", "json")
	if !strings.Contains(out, "nextVersion") {
		t.Error("the resource definition of the next version was not installed, or was taken back")
	}
	kubectl(t, "-n", ns, "rollout", "restart", "deployment/echo")
	rollout(t, ns, "deployment/echo")
	awaitEnded(t, ns, "app=echo")
	l.requireNone("rolling restart after the rollback")
}

// awaitDeletedNamespaces waits until the namespaces of earlier tests are gone. Sidecars lose the listeners of their Services
// until then.
func awaitDeletedNamespaces(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		for _, ns := range get[corev1.NamespaceList](t, "namespaces").Items {
			if ns.DeletionTimestamp != nil {
				return fmt.Errorf("namespace %s is still being deleted", ns.Name)
			}
		}
		return nil
	})
}

// awaitProxies waits until the control plane lists at least least proxies of a namespace.
func awaitProxies(t *testing.T, ns string, least int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		out, err := inControlPlane(t, "proxies")
		if err == nil && strings.Count(out, ns) < least {
			err = fmt.Errorf("not all proxies have reconnected:\n%s", out)
		}
		return err
	})
}
