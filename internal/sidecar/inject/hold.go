package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
)

// The kubelet ends all containers of a Pod at once. An application that closes its port before every proxy has ACKed the
// removal of its endpoints fails their calls. So each of its containers gets a preStop hook that the agent answers when
// every proxy has ACKed. The agent runs a hook of the container's own, of HTTP, TCP or sleep, as well. A command runs in
// the container, where the agent cannot run it, so a container with such a hook is not held.

// holdUntilDrained adds the hooks to a Pod's containers. moved holds the handlers that the agent runs, by path.
func (r *request) holdUntilDrained(pod *corev1.Pod, moved map[string]*prober) error {
	hold := r.HoldUntilDrained
	if v, ok := pod.Annotations[annotationHoldUntilDrained]; ok {
		var err error
		if hold, err = parseBool(annotationHoldUntilDrained, v); err != nil {
			return err
		}
	}
	if !hold || !r.hasOwnAgent() {
		return nil
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name == proxyContainer {
			continue
		}
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		switch own := c.Lifecycle.PreStop; {
		case own == nil:
		case own.Sleep != nil:
			moved[appprobe.PreStopPath(c.Name)] = &prober{Sleep: own.Sleep}
		default:
			continue
		}
		c.Lifecycle.PreStop = &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: appprobe.PreStopPath(c.Name), Port: intstr.FromInt32(int32(r.statusPort)),
		}}
	}
	return nil
}

// hasOwnAgent reports whether the sidecar is the built-in one, whose agent answers the hooks. A template of the
// configuration may use another image.
func (r *request) hasOwnAgent() bool {
	_, replaced := r.parsed[SidecarTemplate]
	return !replaced && slices.Contains(r.templatesOf(r.pod), SidecarTemplate)
}

// releaseContainers removes the hooks that holdUntilDrained added.
func releaseContainers(pod *corev1.Pod, moved map[string]*prober) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		hook := c.Lifecycle.PreStop
		if hook.HTTPGet == nil || hook.HTTPGet.Path != appprobe.PreStopPath(c.Name) {
			continue
		}
		switch p := moved[appprobe.PreStopPath(c.Name)]; {
		case p == nil:
			c.Lifecycle.PreStop = nil
		case p.Sleep != nil:
			c.Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: p.Sleep}
		}
		if *c.Lifecycle == (corev1.Lifecycle{}) {
			c.Lifecycle = nil
		}
	}
}
