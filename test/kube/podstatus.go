package main

import (
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podRun is what the kubelet knows about a pod beyond the pod itself.
type podRun struct {
	addrs  []netip.Addr
	hostIP string
	since  time.Time // its containers run since then
	ready  bool      // its containers are
	ended  bool      // its containers have
	now    time.Time
}

// podStatus returns the status of a pod, as a pure function of the pod and its run.
func podStatus(pod *v1.Pod, r podRun) v1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.Phase = v1.PodRunning
	if r.ended {
		s.Phase = v1.PodSucceeded
	}
	start := metav1.NewTime(r.since)
	s.StartTime = &start
	s.HostIP, s.HostIPs = r.hostIP, []v1.HostIP{{IP: r.hostIP}}
	s.PodIPs = nil
	for _, a := range r.addrs {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: a.String()})
	}
	s.PodIP = s.PodIPs[0].IP
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for _, c := range pod.Spec.InitContainers {
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		s.InitContainerStatuses = append(s.InitContainerStatuses, containerStatus(c, r, !sidecar))
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, containerStatus(c, r, false))
	}
	setConditions(&s, pod.Spec.ReadinessGates, r)
	return s
}

// containerStatus is the status of a container that runs, or, if done is set, has ended.
func containerStatus(c v1.Container, r podRun, done bool) v1.ContainerStatus {
	start, over := metav1.NewTime(r.since), done || r.ended
	running := !over
	s := v1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "none://" + c.Name,
		Ready: done || r.ready && running, Started: &running,
	}
	if running {
		s.State.Running = &v1.ContainerStateRunning{StartedAt: start}
		return s
	}
	finish := start
	if !done {
		finish = metav1.NewTime(r.now)
	}
	s.State.Terminated = &v1.ContainerStateTerminated{Reason: "Completed", StartedAt: start, FinishedAt: finish, ContainerID: s.ContainerID}
	return s
}

func setConditions(s *v1.PodStatus, gates []v1.PodReadinessGate, r podRun) {
	containers := r.ready && !r.ended
	ready := containers && !slices.ContainsFunc(gates, func(g v1.PodReadinessGate) bool { return !isTrue(s.Conditions, g.ConditionType) })
	setCondition(s, v1.PodInitialized, true, r.now)
	setCondition(s, v1.ContainersReady, containers, r.now)
	setCondition(s, v1.PodReady, ready, r.now)
}

func isTrue(conditions []v1.PodCondition, typ v1.PodConditionType) bool {
	return slices.ContainsFunc(conditions, func(c v1.PodCondition) bool { return c.Type == typ && c.Status == v1.ConditionTrue })
}

// setCondition sets the time of the last transition to now if the condition has none.
func setCondition(s *v1.PodStatus, typ v1.PodConditionType, is bool, now time.Time) {
	status := v1.ConditionFalse
	if is {
		status = v1.ConditionTrue
	}
	next := v1.PodCondition{Type: typ, Status: status, LastTransitionTime: metav1.NewTime(now)}
	i := slices.IndexFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == typ })
	switch {
	case i < 0:
		s.Conditions = append(s.Conditions, next)
	case s.Conditions[i].Status != status:
		s.Conditions[i] = next
	}
}
