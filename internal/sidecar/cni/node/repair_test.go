//go:build linux

package node

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/test/netns"
)

// validation sets the status of a Pod's istio-validation.
func validation(p *corev1.Pod, now, last corev1.ContainerState, restarts int32) *corev1.Pod {
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: inject.ValidationContainer, State: now, LastTerminationState: last, RestartCount: restarts,
	}}
	return p
}

func exited(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

var (
	isRunning = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	isWaiting = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	isNew     = corev1.ContainerState{}
)

// TestStates checks which Pods may need a repair.
func TestStates(t *testing.T) {
	for name, tc := range map[string]struct {
		change      func(*corev1.Pod)
		may, failed bool
	}{
		"failed":              {func(p *corev1.Pod) { validation(p, exited(126), isNew, 0) }, true, true},
		"waits after failure": {func(p *corev1.Pod) { validation(p, isWaiting, exited(126), 1) }, true, true},
		"runs again":          {func(p *corev1.Pod) { validation(p, isRunning, exited(126), 1) }, true, true},
		"runs":                {func(p *corev1.Pod) { validation(p, isRunning, isNew, 0) }, true, false},
		"succeeded at last":   {func(p *corev1.Pod) { validation(p, exited(0), exited(126), 1) }, false, false},
		"waits":               {func(p *corev1.Pod) { validation(p, isWaiting, isNew, 0) }, false, false},
		"another failure":     {func(p *corev1.Pod) { validation(p, isWaiting, exited(1), 1) }, false, false},
		"ends": {func(p *corev1.Pod) {
			validation(p, exited(126), isNew, 0).DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, false, false},
		"no such container": {func(*corev1.Pod) {}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := injected(t, "cart")
			tc.change(p)
			s, may := stateOf(p)
			require.Equal(t, tc.may, may)
			require.Equal(t, tc.failed, s.failed)
		})
	}
}

// withRepair runs a repairer, and calls then while it runs.
func withRepair(t *testing.T, c *cluster, change func(*Agent), then func(*Agent)) {
	t.Helper()
	a := newAgent(t, c)
	change(a)
	a.repairer = newRepairer(a)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.repairer.run(ctx) }()
	then(a)
	stop()
	require.NoError(t, <-done)
}

// repaired waits until a type of repair has a result.
func repaired(t *testing.T, a *Agent, kind, result string, n float64) {
	t.Helper()
	require.Eventually(t, func() bool { return testutil.ToFloat64(a.metrics.repairs.WithLabelValues(kind, result)) == n },
		patience, time.Millisecond, "%s %s", kind, result)
}

// waiting is the number of Pods that wait for a repair.
func waiting(a *Agent) int {
	a.repairer.mu.Lock()
	defer a.repairer.mu.Unlock()
	return len(a.repairer.pending)
}

// settled waits until a Pod's state is dealt with.
func settled(t *testing.T, a *Agent, p *corev1.Pod) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.repairer.mu.Lock()
		defer a.repairer.mu.Unlock()
		_, done := a.repairer.done[p.UID]
		return done
	}, patience, time.Millisecond)
}

// TestRepairRules repairs Pods in network namespaces: one whose check failed, and one whose check runs.
func TestRepairRules(t *testing.T) {
	n := netns.New(t, true)
	failing, checking, good := n.Host(), n.Host(), n.Host()
	pod := func(h *netns.Host, name string, now, last corev1.ContainerState) *corev1.Pod {
		sleep := h.Command(t, "sleep", "600") // the Pod's process, by which its namespace is found
		require.NoError(t, sleep.Start())
		t.Cleanup(func() { end(sleep) })
		p := validation(injected(t, name), now, last, 1)
		p.Status.PodIP = h.IP.String()
		return p
	}
	there := func(h *netns.Host) bool {
		yes, err := cni.RulesInForce(t.Context(), "/var/run/netns/"+h.Name)
		require.NoError(t, err)
		return yes
	}
	c := &cluster{stored: map[string]*corev1.Pod{}}
	store := func(p *corev1.Pod) *corev1.Pod {
		c.stored[p.Namespace+"/"+p.Name] = p
		return p
	}
	withRepair(t, c, func(*Agent) {}, func(a *Agent) {
		first := store(pod(failing, "failing", isWaiting, exited(126)))
		a.PodChanged(first)
		repaired(t, a, "repair", "success", 1)
		require.True(t, there(failing))
		settled(t, a, first)

		second := store(pod(checking, "checking", isRunning, isNew))
		a.PodChanged(second)
		repaired(t, a, "repair", "success", 2)
		settled(t, a, second)
		require.True(t, there(checking))

		known := pod(good, "good", isRunning, isNew)
		a.done(cni.Pod{Namespace: "shop", Name: "good", UID: string(known.UID)}, cni.Result{Backend: "nftables"})
		a.PodChanged(known) // the plugin has set its rules
		a.PodChanged(first) // nothing has changed
		require.Zero(t, waiting(a))

		excluded := pod(good, "excluded", isWaiting, exited(126))
		excluded.Namespace = "kube-system"
		a.PodChanged(excluded)
		require.Zero(t, waiting(a))
	})
	require.False(t, there(good))
	require.Equal(t, []string{"read failing", "event failing RepairedPod", "read checking", "event checking RepairedPod"}, c.did())
}

func end(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// TestOtherWays checks deletion and labels, which apply only after a failure, and once.
func TestOtherWays(t *testing.T) {
	broken := func(name string) *corev1.Pod { return validation(injected(t, name), isWaiting, exited(126), 1) }
	for way, want := range map[string][]string{
		RepairDelete: {"delete cart", "event cart DeleteBrokenPod"},
		RepairLabel:  {"label cart broken=true", "event cart LabelBrokenPod"},
	} {
		c := &cluster{}
		withRepair(t, c, func(a *Agent) { a.Repair.Way = way }, func(a *Agent) {
			a.PodChanged(validation(injected(t, "checking"), isRunning, isNew, 0))
			require.Zero(t, waiting(a))
			a.PodChanged(broken("cart"))
			repaired(t, a, way, "success", 1)
			settled(t, a, broken("cart"))
			a.PodChanged(broken("cart"))
			require.Zero(t, waiting(a))
			if way == RepairLabel {
				labelled := broken("labelled")
				labelled.Labels["broken"] = "yes"
				a.PodChanged(labelled)
				repaired(t, a, way, "skip", 1)
			}
		})
		require.Equal(t, want, c.did())
	}
	withRepair(t, &cluster{}, func(a *Agent) { a.Repair.Way = RepairOff }, func(a *Agent) {
		a.PodChanged(broken("cart"))
		require.Zero(t, waiting(a))
	})
}

// TestRepairIsRepeated checks that a failed repair is tried again, and that a Pod that is gone is forgotten.
func TestRepairIsRepeated(t *testing.T) {
	c := &cluster{fails: errors.New("refused")}
	withRepair(t, c, func(a *Agent) { a.Repair.Way = RepairDelete }, func(a *Agent) {
		p := validation(injected(t, "cart"), isWaiting, exited(126), 1)
		a.PodChanged(p)
		require.Eventually(t, func() bool { return len(c.did()) >= 2 }, patience, time.Millisecond)
		a.PodGone(p)
	})
	a := newAgent(t, c)
	p := validation(injected(t, "cart"), isWaiting, exited(126), 1)
	a.PodChanged(p)
	for range repairAttempts {
		a.repairer.settle(p, errors.New("refused"))
	}
	require.InDelta(t, 1, testutil.ToFloat64(a.metrics.repairs.WithLabelValues("repair", "fail")), 0)
	require.Empty(t, a.repairer.failed)
	a.PodGone(p)
	require.Empty(t, a.repairer.done)
	require.Zero(t, waiting(a))
}

// TestGonePodsAreForgotten checks that nothing remains of a Pod that goes during its repair, or that the copy never has.
func TestGonePodsAreForgotten(t *testing.T) {
	a := newAgent(t, &cluster{})
	p := validation(injected(t, "cart"), isWaiting, exited(126), 1)
	a.PodChanged(p)
	a.PodGone(p)
	a.repairer.settle(p, errors.New("refused"))
	a.repairer.settle(p, nil)
	require.Empty(t, a.repairer.failed)
	require.Empty(t, a.repairer.done)
	require.Empty(t, a.repairer.pending)
	a.repairer.redirected("static")
	a.repairer.sweep(time.Now())
	require.Len(t, a.repairer.plugged, 1, "the copy may not have it yet")
	a.repairer.sweep(time.Now().Add(2 * pluggedFor))
	require.Empty(t, a.repairer.plugged)
}

// TestRepairKnowsTheAddresses checks that a repaired Pod gets rules for the families of its addresses.
func TestRepairKnowsTheAddresses(t *testing.T) {
	p := &corev1.Pod{}
	p.Status.PodIP = "192.0.2.1"
	require.Equal(t, []string{"192.0.2.1"}, addressesOf(p))
	p.Status.PodIPs = []corev1.PodIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}
	require.Equal(t, []string{"192.0.2.1", "2001:db8::1"}, addressesOf(p))
}

// TestRulesAreForThePod checks that no rules are set if another Pod may have the address of an old copy.
func TestRulesAreForThePod(t *testing.T) {
	p := injected(t, "cart")
	p.UID, p.Status.PodIP = "1", "192.0.2.1"
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		same   bool
		wrong  string
	}{
		"the same":        {func(*corev1.Pod) {}, true, ""},
		"another Pod":     {func(p *corev1.Pod) { p.UID = "2" }, false, ""},
		"it ends":         {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false, ""},
		"another address": {func(p *corev1.Pod) { p.Status.PodIP = "192.0.2.2" }, false, "its address changed from 192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			now := p.DeepCopy()
			c.change(now)
			same, err := newAgent(t, &cluster{stored: map[string]*corev1.Pod{"shop/cart": now}}).repairer.unchanged(t.Context(), p)
			require.Equal(t, c.same, same)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.wrong)
			}
		})
	}
	same, err := newAgent(t, &cluster{}).repairer.unchanged(t.Context(), p)
	require.NoError(t, err)
	require.False(t, same)
}
