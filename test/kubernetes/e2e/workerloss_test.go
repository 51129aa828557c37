package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestWorkerLoss ends node2 at once, as a power failure does, under traffic from node1. Calls in flight fail, and without
// outlier detection so do calls of its endpoints until Kubernetes removes them. It prints how many. Afterwards no
// call may fail.
func TestWorkerLoss(t *testing.T) {
	requireFull(t)
	if !owned {
		t.Skip("another process runs the cluster (E2E_CLUSTER), and its nodes")
	}
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	on := map[string]int{}
	for _, p := range pods(t, ns, "app=echo") {
		on[p.Spec.NodeName]++
	}
	if on["node1"] == 0 || on["node2"] == 0 {
		t.Fatalf("Pods by node: %v: expected some on each", on)
	}
	l := startLoad(t, ns, "node1", clients)
	began := time.Now()
	if err := testCluster.KillNode("node2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Minute, func() error {
		for _, p := range get[corev1.PodList](t, "-n", ns, "pods", "-l", "app=echo").Items {
			for _, c := range p.Status.Conditions {
				if p.Spec.NodeName == "node2" && c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return fmt.Errorf("Pod %s of the lost node is still ready", p.Name)
				}
			}
		}
		return nil
	})
	t.Logf("Kubernetes removed the endpoints of the lost node %.0f s after its end", time.Since(began).Seconds())
	l.report("loss of a node")
	time.Sleep(callTimeout + 2*time.Second) // calls that began before the removal end
	l.reset()
	time.Sleep(10 * time.Second)
	l.requireNone("after the endpoints were removed")
}
