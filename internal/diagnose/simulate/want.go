package simulate

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Mismatches tells how the result differs from what is wanted, one line a difference.
// want is decoded YAML. Of a map in it only the named keys are compared, null standing
// for "not there". Lists must agree in length, and the maps `clusters` and `endpoints`
// as a whole: a share that goes elsewhere is always a difference.
func (r *Result) Mismatches(want any) []string {
	var got any
	b, err := yaml.Marshal(r)
	if err == nil {
		err = yaml.Unmarshal(b, &got)
	}
	if err != nil {
		return []string{err.Error()}
	}
	return mismatches("", got, want, false)
}

func mismatches(at string, got, want any, whole bool) []string {
	switch w := want.(type) {
	case nil:
		if got != nil {
			return []string{fmt.Sprintf("%s: got %v, want nothing", at, got)}
		}
		return nil
	case map[string]any:
		if g, ok := got.(map[string]any); ok || got == nil {
			return mapMismatches(at, g, w, whole)
		}
	case []any:
		g, ok := got.([]any)
		if ok && len(g) == len(w) {
			return listMismatches(at, g, w)
		}
	default:
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s: got %v, want %v", at, shown(got), want)}
}

func shown(v any) any {
	if v == nil {
		return "nothing"
	}
	return v
}

func mapMismatches(at string, got, want map[string]any, whole bool) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		exact := at == "" && (k == "clusters" || k == "endpoints")
		out = append(out, mismatches(join(at, k), got[k], want[k], exact)...)
	}
	if !whole {
		return out
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			out = append(out, fmt.Sprintf("%s: got %v, want nothing", join(at, k), got[k]))
		}
	}
	return out
}

func listMismatches(at string, got, want []any) []string {
	var out []string
	for i := range want {
		out = append(out, mismatches(fmt.Sprintf("%s[%d]", at, i), got[i], want[i], false)...)
	}
	return out
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}
