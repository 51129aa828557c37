package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const cniTaint = "cni.istio.io/not-ready"

// TestCNI runs Pods without NET_ADMIN in a namespace that enforces the Pod Security Standard restricted. One of them starts
// before the plugin is there. A revision of its own injects them, so that other namespaces stay as they are.
func TestCNI(t *testing.T) {
	installRevision(t, "unprivileged", "injection.cni.enabled=true")
	ns := namespaceWith(t, "istio.io/rev: unprivileged, pod-security.kubernetes.io/enforce: restricted")
	kubectl(t, "taint", "node", "node2", cniTaint+":NoSchedule")
	t.Cleanup(func() {
		// The plugin removes it, unless the test failed.
		_, _ = kubectlOutput(context.Background(), nil, "taint", "node", "node2", cniTaint+"-")
	})
	apply(t, ns, earlyYAML)
	eventually(t, time.Minute, func() error { return requireValidating(t, ns) })
	installCNI(t)
	kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/early", "--timeout=1m")
	eventually(t, time.Minute, func() error {
		for _, taint := range get[corev1.Node](t, "node", "node2").Spec.Taints {
			if taint.Key == cniTaint {
				return fmt.Errorf("node2 still has the taint %s", cniTaint)
			}
		}
		return nil
	})
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	for _, p := range pods(t, ns, "app=echo") {
		requireUnprivileged(t, p)
	}
	l := startLoad(t, ns, "", clients)
	kubectl(t, "-n", ns, "rollout", "restart", "deployment/echo")
	rollout(t, ns, "deployment/echo")
	awaitEnded(t, ns, "app=echo")
	l.requireNone("rolling restart of restricted Pods")
	testStrict(t, ns)
	out := kubectl(t, "-n", ns, "exec", "early", "-c", "app", "--", "/app", "get", "http://echo:8080/")
	if want := "spiffe://cluster.local/ns/" + ns + "/sa/default"; !strings.Contains(out, want) {
		t.Errorf("the Pod that started before the plugin calls without its identity %s: %s", want, out)
	}
}

// earlyYAML is a Pod that starts before the plugin.
const earlyYAML = `
apiVersion: v1
kind: Pod
metadata: {name: early, labels: {app: early}}
spec:
  nodeName: node1
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: app
    image: localhost/app:1
    args: [serve]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// requireValidating reports whether the early Pod waits for its rules.
func requireValidating(t *testing.T, ns string) error {
	t.Helper()
	p := get[corev1.Pod](t, "-n", ns, "pod", "early")
	for _, s := range p.Status.InitContainerStatuses {
		if s.Name == "istio-validation" && (s.State.Running != nil || s.State.Terminated != nil || s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff") {
			return nil
		}
	}
	return fmt.Errorf("istio-validation has not started: %+v", p.Status.InitContainerStatuses)
}

// requireUnprivileged checks that no container has capabilities, and that istio-validation takes the place of istio-init.
func requireUnprivileged(t *testing.T, p corev1.Pod) {
	t.Helper()
	requireNativeSidecar(t, p)
	names := map[string]bool{}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		names[c.Name] = true
		if s := c.SecurityContext; s == nil || s.Capabilities == nil || len(s.Capabilities.Add) > 0 {
			t.Errorf("Pod %s: container %s has capabilities: %+v", p.Name, c.Name, s)
		}
	}
	if names["istio-init"] || !names["istio-validation"] {
		t.Errorf("Pod %s has containers %v: expected istio-validation, and not istio-init", p.Name, names)
	}
}

// installRevision installs a control plane beside the default one, and removes it after the test.
func installRevision(t *testing.T, revision, set string) {
	t.Helper()
	if _, err := moonsail(t.Context(), "install", "--image", image, "--revision", revision, "--replicas=1", "--set", set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := moonsail(context.Background(), "uninstall", "--revision", revision, "--yes"); err != nil {
			t.Error(err)
		}
	})
}

// installCNI installs the chart cni. After the test it removes it, and checks that nodes have neither plugin nor entry.
func installCNI(t *testing.T) {
	t.Helper()
	helm(t, "install", "cni", chart("cni"), "-n", "istio-system", "--set", "image="+image+",taint.enabled=true", "--wait", "--timeout=2m")
	t.Cleanup(func() {
		if out, err := testCluster.Tool(context.Background(), "helm", "uninstall", "cni", "-n", "istio-system", "--wait").CombinedOutput(); err != nil {
			t.Errorf("helm uninstall cni: %v: %s", err, out)
		}
		nodes, err := testCluster.Nodes()
		if err != nil {
			t.Error(err)
		}
		for _, node := range nodes {
			cmd, err := testCluster.Exec(context.Background(), node, "sh", "-c", "grep -l moonsail-cni /etc/cni/net.d/*; ls /opt/cni/bin")
			if err != nil {
				t.Fatal(err)
			}
			if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "moonsail") || strings.Contains(string(out), "/etc/cni") {
				t.Errorf("%s still has the plugin: %s", node, out)
			}
		}
	})
}
