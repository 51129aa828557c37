package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// inControlPlane runs moonsail in each replica of the control plane, until one succeeds.
func inControlPlane(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var all error
	for _, p := range pods(t, "istio-system", "app.kubernetes.io/name=moonsail") {
		out, err := kubectlOutput(t.Context(), nil, append([]string{"-n", "istio-system", "exec", p.Name, "--", "moonsail"}, args...)...)
		if err == nil {
			return out, nil
		}
		all = errors.Join(all, err)
	}
	return "", all
}

// TestInstall checks the control plane, injection, a call under STRICT mTLS, and the commands that answer questions.
func TestInstall(t *testing.T) {
	if n := len(pods(t, "istio-system", "app.kubernetes.io/name=moonsail")); n != 2 {
		t.Fatalf("the control plane has %d replicas: expected 2", n)
	}
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	for _, p := range pods(t, ns, "app=echo") {
		requireNativeSidecar(t, p)
	}
	l := startLoad(t, ns, "", clients)
	time.Sleep(3 * time.Second)
	l.requireNone("after the installation")
	t.Run("STRICT", func(t *testing.T) { testStrict(t, ns) })
	t.Run("commands", func(t *testing.T) {
		eventually(t, 30*time.Second, func() error {
			out, err := inControlPlane(t, "proxies")
			if err != nil {
				return err
			}
			if strings.Count(out, " SYNCED ") < 4*3 || strings.Contains(out, "BEHIND") || strings.Contains(out, "NACKED") {
				return fmt.Errorf("not all proxies are in sync:\n%s", out)
			}
			return nil
		})
		for _, tc := range []struct {
			args []string
			want string
		}{
			{[]string{"why", "load." + ns, "http://once:8080/"}, "VirtualService"},
			{[]string{"changes", "--number=1000"}, "EndpointSlice/" + ns + "/"},
		} {
			out, err := inControlPlane(t, tc.args...)
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(out, tc.want) {
				t.Errorf("moonsail %s: no %q in:\n%s", strings.Join(tc.args, " "), tc.want, out)
			}
		}
	})
}

// requireNativeSidecar checks that a Pod has Envoy as an init container that keeps running.
func requireNativeSidecar(t *testing.T, p corev1.Pod) {
	t.Helper()
	always := func(c corev1.Container) bool {
		return c.Name == "istio-proxy" && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	if !slices.ContainsFunc(p.Spec.InitContainers, always) {
		t.Errorf("Pod %s has no native sidecar", p.Name)
	}
}

// testStrict checks that a Pod without a sidecar cannot call a Pod of the namespace, and that the one with a sidecar
// presents its identity.
func testStrict(t *testing.T, ns string) {
	apply(t, ns, `
apiVersion: v1
kind: Pod
metadata: {name: plain, labels: {sidecar.istio.io/inject: "false"}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: app
    image: localhost/app:1
    args: [sleep]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`)
	kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/plain", "--timeout=1m")
	if out, err := kubectlOutput(t.Context(), nil, "-n", ns, "exec", "plain", "--", "/app", "get", "http://echo:8080/"); err == nil {
		t.Errorf("a Pod without a sidecar was answered: %s", out)
	}
	out := kubectl(t, "-n", ns, "exec", "load", "-c", "http", "--", "/app", "get", "http://echo:8080/")
	if want := "spiffe://cluster.local/ns/" + ns + "/sa/default"; !strings.Contains(out, want) {
		t.Errorf("the answer has no identity %s of the caller: %s", want, out)
	}
}
