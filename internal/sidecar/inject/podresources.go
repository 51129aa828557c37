package inject

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
)

// resourceAnnotations set the resources of the sidecar.
var resourceAnnotations = map[corev1.ResourceName]struct{ request, limit string }{
	corev1.ResourceCPU:    {annotationCPU, annotationCPULimit},
	corev1.ResourceMemory: {annotationMemory, annotationMemoryLimit},
}

// CheckResources reports resources of a template's Pods as a whole that are too small for a sidecar: Kubernetes refuses such Pods. The
// fields are those of the template.
func (c *Config) CheckResources(template *corev1.PodTemplateSpec, owner Owner) problem.List {
	of := template.Spec.Resources
	if of == nil {
		return nil
	}
	pod := podOf(template, owner)
	if ok, _ := c.Decide(pod); !ok {
		return nil
	}
	injected, err := c.Inject(pod, owner)
	if err != nil {
		return nil // Check returns it
	}
	var r problem.Report
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		own, all := requestsOf(&pod.Spec, name), requestsOf(&injected.Spec, name)
		given, set := of.Requests[name]
		limit, limited := of.Limits[name]
		at := problem.Path("spec.resources.requests").Key(string(name))
		switch {
		case set && own.Cmp(given) <= 0 && all.Cmp(given) > 0:
			r.Warnf(code.PodResources, at, "%s is less than the %s that the containers request with a sidecar, so Kubernetes refuses the Pods: raise it, or lower the annotation %s", &given, &all, resourceAnnotations[name].request)
		case !set && limited && !own.IsZero() && all.Cmp(own) > 0:
			r.Warnf(code.PodResources, at, "is not set, so it becomes the %s of the containers before the sidecar adds its own, and Kubernetes refuses the Pods: set it to %s", &own, &all)
		}
		sidecar := find(injected.Spec.Containers, proxyContainer) // Kubernetes does not compare the limits of init containers
		if sidecar == nil || !limited {
			continue
		}
		if most := sidecar.Resources.Limits[name]; most.Cmp(limit) > 0 {
			r.Warnf(code.PodResources, problem.Path("spec.resources.limits").Key(string(name)), "%s is less than the %s of the sidecar, so Kubernetes refuses the Pods: raise it, or lower the annotation %s",
				&limit, &most, resourceAnnotations[name].limit)
		}
	}
	return r.Problems
}

// requestsOf returns what the containers of a Pod request together: those that run at the same time, or an init container with those
// before it that keep running, if that is more. A limit without a request is one, too.
func requestsOf(spec *corev1.PodSpec, name corev1.ResourceName) resource.Quantity {
	request := func(c *corev1.Container) resource.Quantity {
		if q, ok := c.Resources.Requests[name]; ok {
			return q
		}
		return c.Resources.Limits[name]
	}
	var lasting, most resource.Quantity
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		during := lasting.DeepCopy()
		during.Add(request(c))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			lasting = during.DeepCopy()
		}
		if during.Cmp(most) > 0 {
			most = during
		}
	}
	for i := range spec.Containers {
		lasting.Add(request(&spec.Containers[i]))
	}
	if lasting.Cmp(most) > 0 {
		return lasting
	}
	return most
}
