package inject

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// operation is an operation of JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the JSON patch from one Pod to another; nil if they are equal.
func Patch(from, to *corev1.Pod) ([]byte, error) {
	a, err := asMap(from)
	if err != nil {
		return nil, err
	}
	b, err := asMap(to)
	if err != nil {
		return nil, err
	}
	operations := differences("", a, b)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

func asMap(pod *corev1.Pod) (map[string]any, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(text, &m)
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// differences compares objects by field, sorted by name. A list that differs is replaced as a whole.
func differences(at string, a, b map[string]any) []operation {
	var out []operation
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, k := range slices.Sorted(maps.Keys(names)) {
		path := at + "/" + pointer.Replace(k)
		was, had := a[k]
		is, has := b[k]
		x, isMap := was.(map[string]any)
		y, staysMap := is.(map[string]any)
		switch {
		case !has:
			out = append(out, operation{Op: "remove", Path: path})
		case !had:
			out = append(out, operation{"add", path, is})
		case isMap && staysMap:
			out = append(out, differences(path, x, y)...)
		case !reflect.DeepEqual(was, is):
			out = append(out, operation{"replace", path, is})
		}
	}
	return out
}
