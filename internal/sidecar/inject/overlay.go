package inject

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// overlay is the result of a template: a patch of a Pod.
type overlay struct {
	name  string
	tree  map[string]any
	patch []byte // tree as JSON
}

// overlays returns the results of a Pod's templates, in their order.
func (r *request) overlays() ([]overlay, error) {
	var out []overlay
	native := false
	for _, name := range r.templatesOf(r.pod) {
		tree, err := r.render(name)
		if err != nil {
			return nil, err
		}
		out = append(out, overlay{name: name, tree: tree})
		native = native || r.native && hasNamed(specOf(tree), "initContainers", proxyContainer)
	}
	for i := range out {
		o := &out[i]
		if native {
			moveToNative(specOf(o.tree))
		}
		replaceSources(specOf(o.tree))
		var err error
		if o.patch, err = json.Marshal(o.tree); err != nil {
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

// moveToNative moves a template's changes of the sidecar to the init containers, where a native sidecar is. Such templates
// are written for a sidecar among the containers.
func moveToNative(spec map[string]any) {
	containers, _ := spec["containers"].([]any)
	i := slices.IndexFunc(containers, isNamed(proxyContainer))
	if i < 0 {
		return
	}
	init, _ := spec["initContainers"].([]any)
	spec["initContainers"] = append(init, containers[i])
	if len(containers) == 1 {
		delete(spec, "containers")
	} else {
		spec["containers"] = slices.Delete(containers, i, i+1)
	}
}

// replaceSources makes each volume of a template replace the source of an earlier volume with its name. A merged volume
// would have two sources, and Kubernetes refuses that.
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

// asPatch returns a Pod as a patch. Empty lists, which would delete, are removed.
func asPatch(p *corev1.Pod) (map[string]any, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	dropEmpty(m)
	return m, nil
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
