package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Inject returns a copy of a Pod with its sidecar. Errors name the annotation or template.
func (c *Config) Inject(pod *corev1.Pod, owner Owner) (*corev1.Pod, error) {
	original, err := restore(pod)
	if err != nil {
		return nil, err
	}
	r, err := c.newRequest(original, owner)
	if err != nil {
		return nil, err
	}
	r.key = hookKeyOf(pod)
	overlays, err := r.overlays()
	if err != nil {
		return nil, err
	}
	merged, all := original.DeepCopy(), &corev1.Pod{}
	if r.native {
		merged = nativeOverride(merged)
	}
	dropDefaultPullPolicy(merged)
	mine := merged
	for _, o := range overlays {
		if merged, err = merge(merged, o.patch); err != nil {
			return nil, fmt.Errorf("template %s: %w", o.name, err)
		}
		if all, err = merge(all, o.patch); err != nil {
			return nil, fmt.Errorf("template %s: %w", o.name, err)
		}
	}
	if merged, err = r.reapply(merged, mine, all); err != nil {
		return nil, err
	}
	return merged, r.finish(merged, original, all)
}

// Check returns why injection refuses the Pods of a template; nil: it does not, or it leaves them alone.
func (c *Config) Check(template *corev1.PodTemplateSpec, owner Owner) error {
	pod := podOf(template, owner)
	if ok, _ := c.Decide(pod); !ok {
		return nil
	}
	_, err := c.Inject(pod, owner)
	return err
}

// podOf returns a Pod of a template.
func podOf(template *corev1.PodTemplateSpec, owner Owner) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = owner.Namespace, owner.Name
	return pod
}

// render executes a template. The result is a patch of a Pod.
func (r *request) render(name string) (map[string]any, error) {
	t, ok := r.parsed[name]
	switch {
	case ok:
		var text bytes.Buffer
		if err := t.Execute(&text, r.data()); err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
		patch, err := yaml.YAMLToJSON(text.Bytes())
		if err != nil {
			return nil, fmt.Errorf("template %s: the result is not YAML: %w", name, err)
		}
		var tree map[string]any
		if err := json.Unmarshal(patch, &tree); err != nil {
			return nil, fmt.Errorf("template %s: the result is not a Pod: %w", name, err)
		}
		return tree, nil
	case name == SidecarTemplate:
		p, err := r.sidecar()
		if err != nil {
			return nil, err
		}
		return asPatch(p)
	case name == GatewayTemplate:
		p, err := r.gateway()
		if err != nil {
			return nil, err
		}
		return asPatch(p)
	}
	known := slices.Sorted(maps.Keys(r.parsed))
	for _, own := range []string{SidecarTemplate, GatewayTemplate} {
		if !slices.Contains(known, own) {
			known = append(known, own)
		}
	}
	return nil, fmt.Errorf("annotation %s: unknown template %q: use one of %s", annotationTemplates, name, strings.Join(known, ", "))
}

// nativeOverride moves a user's container with the sidecar's name to the init containers, where it changes the native
// sidecar.
func nativeOverride(pod *corev1.Pod) *corev1.Pod {
	c := find(pod.Spec.Containers, proxyContainer)
	if c == nil || find(pod.Spec.InitContainers, proxyContainer) != nil {
		return pod
	}
	out := pod.DeepCopy()
	out.Spec.InitContainers = append(out.Spec.InitContainers, *c.DeepCopy())
	out.Spec.Containers = slices.DeleteFunc(out.Spec.Containers, func(c corev1.Container) bool { return c.Name == proxyContainer })
	return out
}

// dropDefaultPullPolicy removes the pull policy that the API server gives to an image without a tag, which "auto" is. It would
// have the kubelet ask a registry for the injected image, whatever its tag is, each time.
func dropDefaultPullPolicy(pod *corev1.Pod) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Image == autoImage && list[i].ImagePullPolicy == corev1.PullAlways {
				list[i].ImagePullPolicy = ""
			}
		}
	}
}

// reapply applies the user's containers over injected containers of the same names.
func (r *request) reapply(merged, mine, injected *corev1.Pod) (*corev1.Pod, error) {
	overrides := &corev1.Pod{}
	for i := range mine.Spec.Containers {
		if c := &mine.Spec.Containers[i]; find(injected.Spec.Containers, c.Name) != nil {
			overrides.Spec.Containers = append(overrides.Spec.Containers, *c)
		}
	}
	for i := range mine.Spec.InitContainers {
		if c := &mine.Spec.InitContainers[i]; find(injected.Spec.InitContainers, c.Name) != nil {
			overrides.Spec.InitContainers = append(overrides.Spec.InitContainers, *c)
		}
	}
	if len(overrides.Spec.Containers)+len(overrides.Spec.InitContainers) == 0 {
		return merged, nil
	}
	overrides = overrides.DeepCopy()
	for _, list := range [][]corev1.Container{overrides.Spec.Containers, overrides.Spec.InitContainers} {
		for i := range list {
			if list[i].Image == autoImage {
				list[i].Image = ""
			}
		}
	}
	r.delaySleeps(overrides.Spec.Containers, injected.Spec.Containers)
	r.delaySleeps(overrides.Spec.InitContainers, injected.Spec.InitContainers)
	tree, err := asPatch(overrides)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	dropHandlers(merged.Spec.Containers, overrides.Spec.Containers)
	dropHandlers(merged.Spec.InitContainers, overrides.Spec.InitContainers)
	return merge(merged, patch)
}

// dropHandlers removes the handlers that overrides replace: a probe or hook with two handlers is invalid.
func dropHandlers(containers, overrides []corev1.Container) {
	for i := range overrides {
		own, c := &overrides[i], find(containers, overrides[i].Name)
		if c == nil {
			continue
		}
		for _, p := range []struct{ own, of *corev1.Probe }{
			{own.LivenessProbe, c.LivenessProbe}, {own.ReadinessProbe, c.ReadinessProbe}, {own.StartupProbe, c.StartupProbe},
		} {
			if p.own != nil && p.of != nil && p.own.ProbeHandler != (corev1.ProbeHandler{}) {
				p.of.ProbeHandler = corev1.ProbeHandler{}
			}
		}
		if own.Lifecycle == nil || c.Lifecycle == nil {
			continue
		}
		if own.Lifecycle.PreStop != nil {
			c.Lifecycle.PreStop = nil
		}
		if own.Lifecycle.PostStart != nil {
			c.Lifecycle.PostStart = nil
		}
	}
}

func find(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
