package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// finish does what no template can: it looks at the whole of a pod.
func (r *request) finish(pod, original, injected *corev1.Pod) error {
	r.order(pod)
	if sidecar := sidecarOf(pod); sidecar != nil {
		r.keepRoot(sidecar)
		if err := r.moveProbes(pod, sidecar); err != nil {
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

// keepRoot: TPROXY takes a right of root, whomever a container of the Pod's wants the sidecar to run as.
func (r *request) keepRoot(sidecar *corev1.Container) {
	own := sidecarOf(r.pod)
	if r.settings.Mode == intercept.ModeTProxy && own != nil && own.SecurityContext != nil && own.SecurityContext.RunAsUser != nil {
		root, no := int64(0), false
		sidecar.SecurityContext.RunAsUser, sidecar.SecurityContext.RunAsNonRoot = &root, &no
	}
}

// sidecarOf is the sidecar's container; nil where templates made none.
func sidecarOf(pod *corev1.Pod) *corev1.Container {
	if c := find(pod.Spec.Containers, proxyContainer); c != nil {
		return c
	}
	return find(pod.Spec.InitContainers, proxyContainer)
}

// order: a native sidecar comes first, after the rules, so that init containers are part of the
// mesh. Otherwise the rules come last, so that init containers are not cut off, and the sidecar
// is the last of the containers, unless the application waits for it.
func (r *request) order(pod *corev1.Pod) {
	if find(pod.Spec.InitContainers, proxyContainer) != nil {
		move(pod.Spec.InitContainers, proxyContainer, true)
		move(pod.Spec.InitContainers, initContainer, true)
		return
	}
	move(pod.Spec.InitContainers, initContainer, false)
	move(pod.Spec.Containers, proxyContainer, r.hold)
}

// move brings a container to the beginning or the end; the others stay in their order.
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

// overrides are containers of the user's that change injected ones. They are kept, so that
// another injection begins with them.
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

// restore is a pod as it was before it was injected; itself where it was not. What an injection
// adds in a form that says nothing of before (labels, kubectl's default container) stays.
func restore(pod *corev1.Pod) (*corev1.Pod, error) {
	text, ok := pod.Annotations[annotationStatus]
	if !ok {
		return pod, nil
	}
	var s status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("annotation %s is not what an injection writes: %w: take it away", annotationStatus, err)
	}
	out := pod.DeepCopy()
	if sidecar := sidecarOf(out); sidecar != nil {
		if err := restoreProbes(out, sidecar); err != nil {
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
			return nil, fmt.Errorf("annotation %s is not what an injection writes: %w: take it away", annotationOverrides, err)
		}
		out.Spec.Containers = append(out.Spec.Containers, o.Containers...)
		out.Spec.InitContainers = append(out.Spec.InitContainers, o.InitContainers...)
	}
	delete(out.Annotations, annotationStatus)
	delete(out.Annotations, annotationOverrides)
	return out, nil
}

// takeFrom removes what was injected.
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

// Prometheus' annotations, which scrapers go by.
const (
	metricsScrape = "prometheus.io/scrape"
	metricsPort   = "prometheus.io/port"
	metricsPath   = "prometheus.io/path"
)

// metrics are where the application has its metrics: what the agent merges with Envoy's.
type metrics struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
}

// moveMetrics leads scrapers to the agent, and tells it where the application's metrics are.
func (r *request) moveMetrics(pod *corev1.Pod, sidecar *corev1.Container) error {
	merge := r.MergeMetrics
	if v, ok := pod.Annotations[annotationMerge]; ok {
		var err error
		if merge, err = parseBool(annotationMerge, v); err != nil {
			return err
		}
	}
	m := metrics{pod.Annotations[metricsScrape], pod.Annotations[metricsPath], pod.Annotations[metricsPort]}
	port := strconv.Itoa(r.statusPort)
	if scrape, err := strconv.ParseBool(m.Scrape); !merge || err == nil && !scrape || m.Port == port {
		return nil
	}
	if m.Port != "" {
		if n, err := strconv.ParseUint(m.Port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("annotation %s: invalid port %q: use 1 to 65535", metricsPort, m.Port)
		}
	}
	if m != (metrics{}) {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: envMetrics, Value: string(text)})
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[metricsScrape], pod.Annotations[metricsPort], pod.Annotations[metricsPath] = "true", port, "/stats/prometheus"
	return nil
}

// restoreMetrics puts annotations back that were moved.
func restoreMetrics(pod *corev1.Pod, sidecar *corev1.Container) error {
	var m metrics
	moved, err := fromEnv(sidecar, envMetrics, &m)
	if err != nil || !moved && pod.Annotations[metricsPath] != "/stats/prometheus" {
		return err
	}
	for name, value := range map[string]string{metricsScrape: m.Scrape, metricsPort: m.Port, metricsPath: m.Path} {
		if delete(pod.Annotations, name); value != "" {
			pod.Annotations[name] = value
		}
	}
	return nil
}

// fromEnv reads an environment variable of JSON of a container.
func fromEnv(c *corev1.Container, name string, into any) (there bool, err error) {
	for _, e := range c.Env {
		if e.Name == name {
			if err := json.Unmarshal([]byte(e.Value), into); err != nil {
				return false, fmt.Errorf("container %s: environment variable %s is not what an injection writes: %w", c.Name, name, err)
			}
			return true, nil
		}
	}
	return false, nil
}
