package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestRollingRestart restarts a Deployment three times under traffic, with and without retries. No call may fail, and no
// hook or probe of a Pod that ends.
func TestRollingRestart(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, echoYAML)
	rollout(t, ns, "deployment/echo")
	l := startLoad(t, ns, "", clients)
	for range 3 {
		kubectl(t, "-n", ns, "rollout", "restart", "deployment/echo")
		rollout(t, ns, "deployment/echo")
	}
	awaitEnded(t, ns, "app=echo")
	l.requireNone("three rolling restarts")
	requireQuietEnd(t, ns)
}

// awaitEnded waits until no Pod is ending.
func awaitEnded(t *testing.T, ns, selector string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for _, p := range get[corev1.PodList](t, "-n", ns, "pods", "-l", selector).Items {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("Pod %s is still ending", p.Name)
			}
		}
		return nil
	})
}

// requireQuietEnd checks the events of Pods that have ended: no hook has failed, and no probe was answered with a failure.
// The kubelet may probe a Pod whose last container ended a moment ago. Such probes are only counted.
func requireQuietEnd(t *testing.T, ns string) {
	t.Helper()
	events := get[corev1.EventList](t, "-n", ns, "events").Items
	ended := map[string]time.Time{}
	for _, e := range events {
		if e.Reason == "Killing" {
			ended[e.InvolvedObject.Name] = e.FirstTimestamp.Time
		}
	}
	late := 0
	for _, e := range events {
		switch began, ok := ended[e.InvolvedObject.Name]; {
		case e.Reason == "FailedPreStopHook" || e.Reason == "FailedKillPod":
			t.Errorf("Pod %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		case !ok || e.Reason != "Unhealthy" || e.LastTimestamp.Time.Before(began):
		case strings.Contains(e.Message, "statuscode"):
			t.Errorf("Pod %s: %d probes failed while it ended: %s", e.InvolvedObject.Name, e.Count, e.Message)
		default:
			late += int(e.Count)
			t.Logf("Pod %s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
	t.Logf("%d Pods ended: no hook failed, no probe was answered with a failure; %d probes came after the end", len(ended), late)
}
