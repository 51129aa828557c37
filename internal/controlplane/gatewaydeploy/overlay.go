package gatewaydeploy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/moonsail/moonsail/internal/model"
)

// overlay is a ConfigMap with changes to the objects of Gateways: strategic merge patches in YAML, by kind.
type overlay struct {
	source string // names the ConfigMap in messages
	data   map[string]string
}

// check returns an error for a key that no kind has.
func (o *overlay) check() error {
	var known []string
	for i := range kinds {
		known = append(known, kinds[i].overlay)
	}
	for _, k := range slices.Sorted(maps.Keys(o.data)) {
		if !slices.Contains(known, k) {
			return fmt.Errorf("%s: data[%s]: unknown key: use %s", o.source, k, strings.Join(known, ", "))
		}
	}
	return nil
}

// overlaid applies the overlays of a kind to an object. changed is set if there is one.
func (k *kind) overlaid(fields map[string]any, overlays []overlay) (out map[string]any, changed bool, err error) {
	meta, err := strategicpatch.NewPatchMetaFromStruct(k.example)
	if err != nil {
		return nil, false, err
	}
	for i := range overlays {
		text, ok := overlays[i].data[k.overlay]
		if !ok {
			continue
		}
		where := fmt.Sprintf("%s: data[%s]", overlays[i].source, k.overlay)
		patch := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &patch); err != nil {
			return nil, false, unusable("%s: expected a YAML object: %w", where, err)
		}
		if patch == nil { // the text is empty
			patch = map[string]any{}
		}
		before := runtime.DeepCopyJSON(fields) // the merge changes fields
		if fields, err = mergePatch(fields, patch, meta); err != nil {
			return nil, false, unusable("%s: cannot be applied to a %s: %w", where, k.kind, err)
		}
		if err := unchanged(before, fields); err != nil {
			return nil, false, unusable("%s: %w", where, err)
		}
		changed = true
	}
	return fields, changed, nil
}

// mergePatch applies a strategic merge patch. Kubernetes' function panics for some patches, for example if a list has null or
// elements of several types. Users write the patches, so a panic is an error about the patch.
func mergePatch(fields, patch map[string]any, meta strategicpatch.LookupPatchMeta) (out map[string]any, err error) {
	if err := checkLists("", patch); err != nil {
		return nil, err
	}
	defer func() {
		if cause := recover(); cause != nil {
			out, err = nil, fmt.Errorf("not a strategic merge patch: %v", cause)
		}
	}()
	return strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(fields, patch, meta)
}

// checkLists returns an error for a list with null or with elements of several types.
func checkLists(path string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if err := checkLists(strings.TrimPrefix(path+"."+k, "."), v[k]); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			switch {
			case e == nil:
				return fmt.Errorf("%s[%d]: null: remove it", path, i)
			case reflect.TypeOf(e) != reflect.TypeOf(v[0]):
				return fmt.Errorf("%s[%d]: elements of a list must have one type", path, i)
			}
			if err := checkLists(fmt.Sprintf("%s[%d]", path, i), e); err != nil {
				return err
			}
		}
	}
	return nil
}

// fixed are fields that overlays may not change: they identify an object, and its owner.
var fixed = [][]string{
	{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "generateName"}, {"metadata", "namespace"}, {"metadata", "uid"},
	{"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "creationTimestamp"}, {"metadata", "deletionTimestamp"},
	{"metadata", "deletionGracePeriodSeconds"}, {"metadata", "ownerReferences"}, {"metadata", "finalizers"}, {"metadata", "managedFields"},
	{"metadata", "labels", labelManaged}, {"metadata", "labels", model.LabelGatewayName}, {"status"},
}

// unchanged returns an error that names the first fixed field that differs.
func unchanged(before, after map[string]any) error {
	for _, path := range fixed {
		if !reflect.DeepEqual(at(before, path), at(after, path)) {
			return fmt.Errorf("%s: cannot be changed: remove it", strings.Join(path, "."))
		}
	}
	return nil
}

// at returns the value of a field; nil if it is not set.
func at(fields map[string]any, path []string) any {
	var v any = fields
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}
