package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Ways to repair a Pod that started without rules.
const (
	RepairRules  = "rules"  // set the rules in the running Pod
	RepairDelete = "delete" // delete the Pod; its controller creates another
	RepairLabel  = "label"  // label the Pod
	RepairOff    = "off"
)

// Ways lists the ways to repair.
func Ways() []string { return []string{RepairRules, RepairDelete, RepairLabel, RepairOff} }

// Repair determines how Pods are repaired.
type Repair struct {
	Way   string
	Label string // KEY=VALUE, of RepairLabel
	Proc  string // /proc of the node, for RepairRules
}

// validationFailed is the exit status of istio-validation without rules.
const validationFailed = 126

// Attempts to repair one state of a Pod, as istio-cni.
const (
	repairAttempts = 5
	repairEvery    = time.Second
)

// repairer repairs Pods, one after the other.
type repairer struct {
	Repair
	cluster  Cluster
	excluded []string // namespaces
	log      *slog.Logger
	metrics  *metrics
	set      func(context.Context, string, intercept.Settings) (intercept.Backend, error)
	inForce  func(context.Context, string) (bool, error)

	mu      sync.Mutex // guards the maps
	pending map[types.UID]*corev1.Pod
	done    map[types.UID]state // the last state that was dealt with
	failed  map[types.UID]int   // attempts at the present state
	plugged map[types.UID]bool  // the plugin has set the rules
	wake    chan struct{}
}

func newRepairer(a *Agent) *repairer {
	return &repairer{
		Repair: a.Repair, cluster: a.Cluster, excluded: a.Installer.Entry.ExcludeNamespaces, log: a.Log, metrics: a.metrics,
		set: cni.SetRules, inForce: cni.RulesInForce,
		pending: map[types.UID]*corev1.Pod{}, done: map[types.UID]state{}, failed: map[types.UID]int{}, plugged: map[types.UID]bool{},
		wake: make(chan struct{}, 1),
	}
}

// state is what istio-validation found in a Pod.
type state struct {
	failed   bool // it found no rules
	restarts int32
}

// stateOf returns the state of a Pod that may need a repair; false: it needs none. While istio-validation runs, the Pod
// may still be repaired before it fails.
func stateOf(pod *corev1.Pod) (state, bool) {
	if pod.DeletionTimestamp != nil || pod.Spec.HostNetwork {
		return state{}, false
	}
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if s.Name != inject.ValidationContainer {
			continue
		}
		out := state{restarts: s.RestartCount}
		now, last := s.State.Terminated, s.LastTerminationState.Terminated
		switch {
		case now != nil && now.ExitCode == 0:
			return out, false
		case now != nil && now.ExitCode == validationFailed, now == nil && last != nil && last.ExitCode == validationFailed:
			out.failed = true
			return out, true
		}
		return out, s.State.Running != nil
	}
	return state{}, false
}

// add considers a Pod.
func (r *repairer) add(pod *corev1.Pod) {
	s, may := stateOf(pod)
	if !may || r.Way == RepairOff || slices.Contains(r.excluded, pod.Namespace) {
		return
	}
	if r.Way == RepairRules && !running(pod) || r.Way != RepairRules && !s.failed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if done, ok := r.done[pod.UID]; ok && done == s || !s.failed && r.plugged[pod.UID] {
		return
	}
	r.pending[pod.UID] = pod
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// running reports whether a Pod has a network namespace.
func running(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// forget forgets a Pod that is gone.
func (r *repairer) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, uid)
	delete(r.done, uid)
	delete(r.failed, uid)
	delete(r.plugged, uid)
}

// redirected records that the plugin has set a Pod's rules.
func (r *repairer) redirected(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plugged[uid] = true
}

// run repairs until ctx ends.
func (r *repairer) run(ctx context.Context) error {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	for {
		r.mu.Lock()
		due := r.pending
		r.pending = map[types.UID]*corev1.Pod{}
		r.mu.Unlock()
		for _, pod := range due {
			r.settle(pod, r.repair(ctx, pod))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-tick.C: // for failed attempts
		}
	}
}

// settle records the result of an attempt. A failed one is repeated.
func (r *repairer) settle(pod *corev1.Pod, err error) {
	s, _ := stateOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed[pod.UID]++
		if r.failed[pod.UID] < repairAttempts {
			if _, newer := r.pending[pod.UID]; !newer {
				r.pending[pod.UID] = pod
			}
			return
		}
		r.metrics.repairs.WithLabelValues(r.kind(), "fail").Inc()
		r.log.Warn("a Pod without interception could not be repaired", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
	delete(r.failed, pod.UID)
	r.done[pod.UID] = s
}

// kind is the type of repair in metrics, in istio-cni's words.
func (r *repairer) kind() string {
	if r.Way == RepairRules {
		return "repair"
	}
	return r.Way
}

// repair repairs a Pod.
func (r *repairer) repair(ctx context.Context, pod *corev1.Pod) error {
	redirection, err := inject.RedirectionOf(pod)
	if err != nil || !redirection.Redirect {
		return err
	}
	switch r.Way {
	case RepairDelete:
		if err := r.cluster.Delete(ctx, pod); err != nil {
			return err
		}
		r.report(ctx, pod, "DeleteBrokenPod", "deleted: it started before the CNI plugin could redirect its connections")
	case RepairLabel:
		key, value, _ := strings.Cut(r.Label, "=")
		if _, ok := pod.Labels[key]; ok {
			r.metrics.repairs.WithLabelValues(r.kind(), "skip").Inc()
			return nil
		}
		if err := r.cluster.Label(ctx, pod, key, value); err != nil {
			return err
		}
		r.report(ctx, pod, "LabelBrokenPod", "labelled "+r.Label+": it started before the CNI plugin could redirect its connections; delete it")
	case RepairRules:
		return r.setRules(ctx, pod, redirection.Settings)
	}
	return nil
}

// setRules sets the rules in a running Pod, unless they are there. Its istio-validation then succeeds.
func (r *repairer) setRules(ctx context.Context, pod *corev1.Pod, settings intercept.Settings) error {
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return fmt.Errorf("its address %q is invalid", pod.Status.PodIP)
	}
	namespace, err := findNamespace(r.Proc, address)
	if err != nil {
		return err
	}
	defer namespace.Close()
	there, err := r.inForce(ctx, fileOf(namespace))
	if err != nil || there {
		return err
	}
	if _, err := r.set(ctx, fileOf(namespace), settings); err != nil {
		return err
	}
	r.report(ctx, pod, "RepairedPod", "redirected its connections to the sidecar: it started before the CNI plugin could")
	return nil
}

// report counts and logs a repair, and writes an event if it may.
func (r *repairer) report(ctx context.Context, pod *corev1.Pod, reason, message string) {
	r.metrics.repairs.WithLabelValues(r.kind(), "success").Inc()
	r.log.Info("repaired a Pod without interception", "pod", pod.Namespace+"/"+pod.Name, "how", r.Way)
	if err := r.cluster.Event(ctx, pod, corev1.EventTypeWarning, reason, message); err != nil {
		r.log.Debug("an event was not written", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}
