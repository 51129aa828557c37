package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// overlay is the result of a template: a patch of a Pod, as JSON.
type overlay struct {
	name  string
	patch []byte
}

// overlays returns the results of a Pod's templates, in their order.
func (r *request) overlays() ([]overlay, error) {
	var out []overlay
	var patches []map[string]any
	native := false
	for _, name := range r.templatesOf(r.pod) {
		text, err := r.render(name)
		if err != nil {
			return nil, err
		}
		var patch map[string]any
		if err := json.Unmarshal(text, &patch); err != nil {
			return nil, fmt.Errorf("template %s: the result is not a Pod: %w", name, err)
		}
		out, patches = append(out, overlay{name: name}), append(patches, patch)
		native = native || r.native && hasNamed(specOf(patch), "initContainers", proxyContainer)
	}
	for i, patch := range patches {
		if native {
			moveToNative(specOf(patch))
		}
		replaceSources(specOf(patch))
		var err error
		if out[i].patch, err = json.Marshal(patch); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// specOf returns the spec in a patch of a Pod; nil: it has none.
func specOf(patch map[string]any) map[string]any {
	spec, _ := patch["spec"].(map[string]any)
	return spec
}

func isNamed(name string) func(any) bool {
	return func(v any) bool {
		m, _ := v.(map[string]any)
		return m["name"] == name
	}
}

func hasNamed(spec map[string]any, field, name string) bool {
	list, _ := spec[field].([]any)
	return slices.ContainsFunc(list, isNamed(name))
}

// moveToNative moves a template's changes of the sidecar to the init containers, where the native sidecar is. Templates that are written
// for a sidecar among the containers change the native one, too.
func moveToNative(spec map[string]any) {
	containers, _ := spec["containers"].([]any)
	i := slices.IndexFunc(containers, isNamed(proxyContainer))
	if i < 0 {
		return
	}
	init, _ := spec["initContainers"].([]any)
	spec["initContainers"] = append(init, containers[i])
	if spec["containers"] = slices.Delete(containers, i, i+1); len(containers) == 1 {
		delete(spec, "containers")
	}
}

// replaceSources makes each volume of a template replace the source that a volume of this name has. Merged, the volume would have two,
// which Kubernetes refuses.
func replaceSources(spec map[string]any) {
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		isSet := func(field string) bool { return field != "name" && volume[field] != nil }
		fields := slices.Sorted(maps.Keys(volume))
		if slices.ContainsFunc(fields, isSet) && volume["$retainKeys"] == nil && volume["$patch"] == nil {
			volume["$retainKeys"] = fields
		}
	}
}

// asPatch encodes a Pod as a patch. Empty lists, which would delete, are removed.
func asPatch(p *corev1.Pod) ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	dropEmpty(m)
	return json.Marshal(m)
}

// noise are fields that Go encodes although they are empty.
var noise = []string{"resources", "status", "strategy"}

// dropEmpty removes values that Go encodes for unset fields. Other empty objects have a meaning, such as an emptyDir or
// a selector of everything.
func dropEmpty(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			dropEmpty(e)
			if m, ok := e.(map[string]any); e == nil || ok && len(m) == 0 && slices.Contains(noise, k) {
				delete(v, k)
			}
		}
	case []any:
		for _, e := range v {
			dropEmpty(e)
		}
	}
}

// merge applies a strategic merge patch.
func merge(pod *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	if text, err = strategicpatch.StrategicMergePatch(text, patch, corev1.Pod{}); err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	return out, json.Unmarshal(text, out)
}
