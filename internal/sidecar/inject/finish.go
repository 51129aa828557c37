package inject

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// finish does what templates cannot, because it depends on the whole Pod.
func (r *request) finish(pod, original, injected *corev1.Pod) error {
	r.order(pod)
	if sidecar := sidecarOf(pod); sidecar != nil {
		r.keepRoot(sidecar)
		if err := r.moveHandlers(pod, sidecar); err != nil {
			return err
		}
		if err := r.moveMetrics(pod, sidecar); err != nil {
			return err
		}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for k, v := range r.InjectedAnnotations {
		pod.Annotations[k] = v
	}
	pod.Annotations[annotationStatus] = statusOf(injected, r.Revision)
	return noteOverrides(pod, original, injected)
}

// keepRoot makes the sidecar run as root, which TPROXY needs, even if a container of the Pod sets another user.
func (r *request) keepRoot(sidecar *corev1.Container) {
	own := sidecarOf(r.pod)
	if r.settings.Mode == intercept.ModeTProxy && own != nil && own.SecurityContext != nil && own.SecurityContext.RunAsUser != nil {
		root, no := int64(0), false
		sidecar.SecurityContext.RunAsUser, sidecar.SecurityContext.RunAsNonRoot = &root, &no
	}
}

// sidecarOf returns the sidecar's container; nil if templates added none.
func sidecarOf(pod *corev1.Pod) *corev1.Container {
	if c := find(pod.Spec.Containers, proxyContainer); c != nil {
		return c
	}
	return find(pod.Spec.InitContainers, proxyContainer)
}

// order orders the containers. The check of a CNI plugin's rules comes first. A native sidecar comes first, after the rules, so that init containers are part of the
// mesh. Otherwise the rules come last, so that init containers have connections, and the sidecar is the last container,
// unless the application waits for it.
func (r *request) order(pod *corev1.Pod) {
	native := find(pod.Spec.InitContainers, proxyContainer) != nil
	if native {
		move(pod.Spec.InitContainers, proxyContainer, true)
	} else {
		move(pod.Spec.Containers, proxyContainer, r.hold)
	}
	move(pod.Spec.InitContainers, initContainer, native)
	move(pod.Spec.InitContainers, validationContainer, true)
}

// move moves a container to the front or the end.
func move(list []corev1.Container, name string, toFront bool) {
	slices.SortStableFunc(list, func(a, b corev1.Container) int {
		x, y := a.Name == name, b.Name == name
		if toFront {
			x, y = y, x
		}
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	})
}

// overrides are containers of the user that change injected ones. They are stored, so that another injection begins
// with them.
type overrides struct {
	Containers     []corev1.Container `json:"containers,omitempty"`
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
}

func noteOverrides(pod, original, injected *corev1.Pod) error {
	var o overrides
	ours := func(c *corev1.Container) bool {
		return find(injected.Spec.Containers, c.Name) != nil || find(injected.Spec.InitContainers, c.Name) != nil
	}
	for i := range original.Spec.Containers {
		if c := &original.Spec.Containers[i]; ours(c) {
			o.Containers = append(o.Containers, *c)
		}
	}
	for i := range original.Spec.InitContainers {
		if c := &original.Spec.InitContainers[i]; ours(c) {
			o.InitContainers = append(o.InitContainers, *c)
		}
	}
	if len(o.Containers)+len(o.InitContainers) == 0 {
		return nil
	}
	text, err := json.Marshal(o)
	pod.Annotations[annotationOverrides] = string(text)
	return err
}

// restore returns a Pod as it was before its injection. What an injection adds without a record (labels, kubectl's
// default container) stays.
func restore(pod *corev1.Pod) (*corev1.Pod, error) {
	text, ok := pod.Annotations[annotationStatus]
	if !ok {
		return pod, nil
	}
	var s status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("annotation %s: not written by an injection: %w: remove it", annotationStatus, err)
	}
	out := pod.DeepCopy()
	if sidecar := sidecarOf(out); sidecar != nil {
		if err := restoreHandlers(out, sidecar); err != nil {
			return nil, err
		}
		if err := restoreMetrics(out, sidecar); err != nil {
			return nil, err
		}
	}
	s.takeFrom(&out.Spec)
	if text, ok := out.Annotations[annotationOverrides]; ok {
		var o overrides
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			return nil, fmt.Errorf("annotation %s: not written by an injection: %w: remove it", annotationOverrides, err)
		}
		out.Spec.Containers = append(out.Spec.Containers, o.Containers...)
		out.Spec.InitContainers = append(out.Spec.InitContainers, o.InitContainers...)
	}
	delete(out.Annotations, annotationStatus)
	delete(out.Annotations, annotationOverrides)
	return out, nil
}

// takeFrom removes the injected parts.
func (s *status) takeFrom(spec *corev1.PodSpec) {
	named := func(names []string) func(corev1.Container) bool {
		return func(c corev1.Container) bool { return slices.Contains(names, c.Name) }
	}
	spec.Containers = slices.DeleteFunc(spec.Containers, named(s.Containers))
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, named(s.InitContainers))
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(s.Volumes, v.Name) })
	spec.ImagePullSecrets = slices.DeleteFunc(spec.ImagePullSecrets, func(l corev1.LocalObjectReference) bool {
		return slices.Contains(s.ImagePullSecrets, l.Name)
	})
}

// fromEnv decodes the JSON in an environment variable of a container.
func fromEnv(c *corev1.Container, name string, into any) (there bool, err error) {
	for _, e := range c.Env {
		if e.Name == name {
			if err := json.Unmarshal([]byte(e.Value), into); err != nil {
				return false, fmt.Errorf("container %s: environment variable %s: not written by an injection: %w", c.Name, name, err)
			}
			return true, nil
		}
	}
	return false, nil
}
