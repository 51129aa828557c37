package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Annotations of pods that change how the kubelet treats them.
const (
	// annotationIP is the pod's address, or addresses separated by commas, in place of ones from the pods' range.
	annotationIP = "kubelet.moonsail.dev/ip"
	// annotationReady is "false" while the containers are not ready.
	annotationReady = "kubelet.moonsail.dev/ready"
	// annotationReadyAfter is how long after their start the containers become ready.
	annotationReadyAfter = "kubelet.moonsail.dev/ready-after"
	// annotationStopAfter is how long the containers continue to run after the pod is deleted, in place of
	// --stop-after. The grace period bounds it.
	annotationStopAfter = "kubelet.moonsail.dev/stop-after"
)

// kubelet is the kubelet of all nodes. It runs no containers: it reports that those of pods run, and, after a pod's
// deletion, that they have ended.
type kubelet struct {
	client    kubernetes.Interface
	pods      corelisters.PodLister
	nodes     corelisters.NodeLister
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName] // bounded by the number of pods
	scheduler *scheduler
	addresses *addresses
	stopAfter time.Duration

	mu    sync.Mutex              // guards times
	times map[types.UID]*podTimes // of existing pods
}

// podTimes are stored here because Kubernetes stores whole seconds only.
type podTimes struct{ started, stopping time.Time }

func newKubelet(c config, client kubernetes.Interface, shared informers.SharedInformerFactory) (*kubelet, error) {
	pods, nodes := shared.Core().V1().Pods(), shared.Core().V1().Nodes()
	k := &kubelet{
		client: client, pods: pods.Lister(), nodes: nodes.Lister(), stopAfter: c.stopAfter,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second)),
		scheduler: &scheduler{client: client, nodes: nodes.Lister()},
		addresses: newAddresses(c.podCIDRs),
		times:     map[types.UID]*podTimes{},
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.seen(obj.(*v1.Pod)) },
		UpdateFunc: func(_, obj any) { k.seen(obj.(*v1.Pod)) },
		DeleteFunc: k.forget,
	})
	return k, err
}

// seen records the addresses that a pod has, before others are assigned.
func (k *kubelet) seen(pod *v1.Pod) {
	var list []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !pod.Spec.HostNetwork {
			list = append(list, a)
		}
	}
	if len(list) > 0 {
		k.addresses.have(pod.UID, list)
	}
	k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

func (k *kubelet) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if pod, ok := obj.(*v1.Pod); ok {
		k.addresses.release(pod.UID)
		k.mu.Lock()
		delete(k.times, pod.UID)
		k.mu.Unlock()
	}
}

// run processes pods until the context ends. All pods must have been seen when it starts.
func (k *kubelet) run(ctx context.Context) {
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for k.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	working.Wait()
}

func (k *kubelet) work(ctx context.Context) bool {
	key, quit := k.queue.Get()
	if quit {
		return false
	}
	defer k.queue.Done(key)
	again, err := k.sync(ctx, key)
	switch {
	case err != nil:
		if ctx.Err() == nil && !apierrors.IsConflict(err) {
			klog.ErrorS(err, "kubelet", "pod", key)
		}
		k.queue.AddRateLimited(key)
	case again > 0:
		k.queue.AddAfter(key, again)
		fallthrough
	default:
		k.queue.Forget(key)
	}
	return true
}

// sync advances one pod, and returns after how long to call it again (0: when the pod changes).
func (k *kubelet) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := k.pods.Pods(key.Namespace).Get(key.Name)
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil:
		return 0, k.scheduler.bind(ctx, pod)
	case pod.Spec.NodeName == "", finished(pod):
		return 0, k.remove(ctx, pod)
	}
	r, again, err := k.look(pod)
	if err != nil {
		return 0, err
	}
	if err := k.report(ctx, pod, podStatus(pod, r)); err != nil || !r.ended {
		return again, err
	}
	return 0, k.remove(ctx, pod)
}

func finished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// look returns how a pod is now, and after how long that changes without an event.
func (k *kubelet) look(pod *v1.Pod) (r podRun, again time.Duration, err error) {
	r = podRun{now: time.Now()}
	node, err := k.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return r, 0, err
	}
	r.hostIP = addressOf(node)
	if r.addrs, err = k.addrsOf(pod, r.hostIP); err != nil {
		return r, 0, err
	}
	times := k.timesOf(pod, r.now)
	r.since = times.started
	after, err := duration(pod, annotationReadyAfter, 0)
	if err != nil {
		return r, 0, err
	}
	untilReady := after - r.now.Sub(times.started)
	r.ready = untilReady <= 0 && pod.Annotations[annotationReady] != "false"
	if pod.DeletionTimestamp == nil {
		return r, max(untilReady, 0), nil
	}
	untilEnd, err := k.untilEnd(pod, times, r.now)
	r.ended = untilEnd <= 0
	return r, max(untilEnd, 0), err
}

// untilEnd is how long the containers of a deleted pod continue to run.
func (k *kubelet) untilEnd(pod *v1.Pod, times podTimes, now time.Time) (time.Duration, error) {
	after, err := duration(pod, annotationStopAfter, k.stopAfter)
	if err != nil {
		return 0, err
	}
	return min(times.stopping.Add(after).Sub(now), pod.DeletionTimestamp.Sub(now)), nil
}

func duration(pod *v1.Pod, annotation string, otherwise time.Duration) (time.Duration, error) {
	text, ok := pod.Annotations[annotation]
	if !ok {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %w", annotation, err)
	}
	return d, nil
}

// timesOf returns since when a pod runs and stops.
func (k *kubelet) timesOf(pod *v1.Pod, now time.Time) podTimes {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.times[pod.UID]
	if t == nil {
		t = &podTimes{started: now}
		if pod.Status.StartTime != nil {
			t.started = pod.Status.StartTime.Time // before this process was started
		}
		k.times[pod.UID] = t
	}
	if pod.DeletionTimestamp != nil && t.stopping.IsZero() {
		t.stopping = now
	}
	return *t
}

func (k *kubelet) addrsOf(pod *v1.Pod, host string) (list []netip.Addr, err error) {
	text, ok := pod.Annotations[annotationIP]
	switch {
	case pod.Spec.HostNetwork:
		text = host
	case !ok:
		return k.addresses.give(pod.UID)
	}
	for s := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("address of pod: %w", err)
		}
		list = append(list, a)
	}
	if ok && !pod.Spec.HostNetwork {
		k.addresses.have(pod.UID, list)
	}
	return list, nil
}

// report writes a pod's status if it differs from the present one.
func (k *kubelet) report(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	start := status.StartTime.Rfc3339Copy() // with the precision in which it is stored
	status.StartTime = &start
	if same(pod.Status, status) {
		return nil
	}
	changed := pod.DeepCopy()
	changed.Status = status
	_, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// same compares the fields that matter to readers.
func same(a, b v1.PodStatus) bool {
	return a.Phase == b.Phase && equality.Semantic.DeepEqual(a.PodIPs, b.PodIPs) &&
		equality.Semantic.DeepEqual(a.Conditions, b.Conditions)
}

// remove makes the API server remove a deleted pod whose containers have ended. A pod that has finished stays until it
// is deleted.
func (k *kubelet) remove(ctx context.Context, pod *v1.Pod) error {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return nil // the latter waits for finalizers
	}
	now := metav1.NewDeleteOptions(0)
	now.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *now)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
