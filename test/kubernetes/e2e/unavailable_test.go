package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestNodeDrain evicts all Pods of a node under traffic. A PodDisruptionBudget keeps two of three. No call may fail.
func TestNodeDrain(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, echoYAML+`
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: echo}
spec: {minAvailable: 2, selector: {matchLabels: {app: echo}}}
`)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "node1", clients)
	t.Cleanup(func() {
		if out, err := kubectlOutput(context.Background(), nil, "uncordon", "node2"); err != nil {
			t.Error(err, out)
		}
	})
	kubectl(t, "drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--pod-selector=app=echo", "--timeout=3m")
	rollout(t, ns, "deployment/echo")
	awaitEnded(t, ns, "app=echo")
	for _, p := range pods(t, ns, "app=echo") {
		if p.Spec.NodeName == "node2" {
			t.Errorf("Pod %s is still on node2", p.Name)
		}
	}
	l.requireNone("drain of node2")
	requireQuietEnd(t, ns)
}

// TestControlPlaneKilled kills each replica of the control plane in turn, as the kernel does when memory runs out, and
// restarts the Deployment after each. No call may fail.
func TestControlPlaneKilled(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "", clients)
	for _, p := range pods(t, "istio-system", "app.kubernetes.io/name=moonsail") {
		before := p.Status.ContainerStatuses[0]
		cmd, err := testCluster.Exec(t.Context(), p.Spec.NodeName, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL",
			strings.TrimPrefix(before.ContainerID, "containerd://"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kill the control plane in Pod %s: %v: %s", p.Name, err, out)
		}
		kubectl(t, "-n", ns, "rollout", "restart", "deployment/echo")
		rollout(t, ns, "deployment/echo")
		eventually(t, time.Minute, func() error {
			now := get[corev1.Pod](t, "-n", "istio-system", "pod", p.Name).Status.ContainerStatuses[0]
			if now.RestartCount == before.RestartCount || !now.Ready {
				return fmt.Errorf("Pod %s has not restarted", p.Name)
			}
			return nil
		})
	}
	awaitEnded(t, ns, "app=echo")
	l.requireNone("kill -9 of each control plane, and a rolling restart after each")
}

// TestControlPlaneRollout replaces both replicas of the control plane under traffic. No call may fail, and no
// sidecar may receive again what it has.
func TestControlPlaneRollout(t *testing.T) {
	awaitDeletedNamespaces(t)
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "", clients)
	had := received(t, ns)
	kubectl(t, "-n", "istio-system", "rollout", "restart", "deployment/moonsail")
	rollout(t, "istio-system", "deployment/moonsail")
	awaitEnded(t, "istio-system", "app.kubernetes.io/name=moonsail")
	awaitProxies(t, ns, 4)
	time.Sleep(3 * time.Second)
	l.requireNone("rollout of the control plane")
	had.requireSame(t, received(t, ns), "rollout of the control plane")
}
