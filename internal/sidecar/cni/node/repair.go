package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	repairTimeout  = 30 * time.Second // of one attempt: other Pods wait
	pluggedFor     = time.Minute      // how long a Pod may be known to the plugin, and not yet to the copy
)

// repairer repairs Pods, one after the other. An attempt with RepairRules may enter each network namespace of the node.
type repairer struct {
	Repair
	cluster  Cluster
	excluded []string // namespaces
	log      *slog.Logger
	metrics  *metrics
	set      func(context.Context, string, intercept.Settings, []string) (intercept.Backend, error)
	inForce  func(context.Context, string) (bool, error)

	mu      sync.Mutex         // guards the maps
	known   map[types.UID]bool // Pods of the node; the other maps, except plugged, have no others
	pending map[types.UID]*corev1.Pod
	done    map[types.UID]state     // the last state that was dealt with
	failed  map[types.UID]int       // attempts at the present state
	plugged map[types.UID]time.Time // when the plugin has set the rules; run removes those of Pods that do not exist
	wake    chan struct{}
}

func newRepairer(a *Agent) *repairer {
	return &repairer{
		Repair: a.Repair, cluster: a.Cluster, excluded: a.Installer.Entry.ExcludeNamespaces, log: a.Log, metrics: a.metrics,
		set: cni.SetRules, inForce: cni.RulesInForce,
		pending: map[types.UID]*corev1.Pod{}, done: map[types.UID]state{}, failed: map[types.UID]int{}, plugged: map[types.UID]time.Time{}, known: map[types.UID]bool{},
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
	_, plugged := r.plugged[pod.UID]
	if done, ok := r.done[pod.UID]; ok && done == s || !s.failed && plugged {
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

// see records that a Pod exists.
func (r *repairer) see(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[uid] = true
}

// forget forgets a Pod that is gone.
func (r *repairer) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, uid)
	delete(r.pending, uid)
	delete(r.done, uid)
	delete(r.failed, uid)
	delete(r.plugged, uid)
}

// redirected records that the plugin has set a Pod's rules.
func (r *repairer) redirected(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plugged[uid] = time.Now()
}

// sweep removes what the plugin reported about Pods that do not exist, or whose UID is not the API server's, as that of static Pods.
func (r *repairer) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.plugged, func(uid types.UID, at time.Time) bool { return !r.known[uid] && now.Sub(at) > pluggedFor })
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
			within, cancel := context.WithTimeout(ctx, repairTimeout)
			r.settle(pod, r.repair(within, pod))
			cancel()
		}
		r.sweep(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-tick.C: // for failed attempts
		}
	}
}

// settle records the result of an attempt. A failed one is repeated, unless the Pod has gone meanwhile.
func (r *repairer) settle(pod *corev1.Pod, err error) {
	s, _ := stateOf(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known[pod.UID] {
		return
	}
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
		r.report(ctx, pod, "DeleteBrokenPod", "Deleted Pod: it started before the CNI plugin was ready")
	case RepairLabel:
		key, value, _ := strings.Cut(r.Label, "=")
		if _, ok := pod.Labels[key]; ok {
			r.metrics.repairs.WithLabelValues(r.kind(), "skip").Inc()
			return nil
		}
		if err := r.cluster.Label(ctx, pod, key, value); err != nil {
			return err
		}
		r.report(ctx, pod, "LabelBrokenPod", "Labelled Pod with "+r.Label+": it started before the CNI plugin was ready: delete it")
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
	if there, err = r.unchanged(ctx, pod); err != nil || !there {
		return err
	}
	if _, err := r.set(ctx, fileOf(namespace), settings, addressesOf(pod)); err != nil {
		return err
	}
	r.report(ctx, pod, "RepairedPod", "Redirected connections of Pod to its sidecar: it started before the CNI plugin was ready")
	return nil
}

// addressesOf returns a Pod's addresses.
func addressesOf(pod *corev1.Pod) (out []string) {
	for _, ip := range pod.Status.PodIPs {
		out = append(out, ip.IP)
	}
	if len(out) == 0 {
		return []string{pod.Status.PodIP}
	}
	return out
}

// unchanged reads a Pod again. The copy may be old, and another Pod may have the address now, which must not get these rules. It
// returns false if the Pod has gone.
func (r *repairer) unchanged(ctx context.Context, pod *corev1.Pod) (bool, error) {
	now, err := r.cluster.Read(ctx, pod.Namespace, pod.Name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case now.UID != pod.UID || now.DeletionTimestamp != nil:
		return false, nil
	case now.Status.PodIP != pod.Status.PodIP:
		return false, fmt.Errorf("its address changed from %s to %q", pod.Status.PodIP, now.Status.PodIP)
	}
	return true, nil
}

// report counts and logs a repair, and writes an event if it may.
func (r *repairer) report(ctx context.Context, pod *corev1.Pod, reason, message string) {
	r.metrics.repairs.WithLabelValues(r.kind(), "success").Inc()
	r.log.Info("repaired a Pod without interception", "pod", pod.Namespace+"/"+pod.Name, "how", r.Way)
	if err := r.cluster.Event(ctx, pod, corev1.EventTypeWarning, reason, message); err != nil {
		r.log.Debug("an event was not written", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}
