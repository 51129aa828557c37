package arch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// goLeaf is a field of a Go struct that has no fields below it.
type goLeaf struct {
	at  []string
	typ reflect.Type
}

// goRows probes each field of a kind of Kubernetes' APIs.
func (k fieldKind) goRows(t *testing.T) (rows []fieldRow) {
	t.Helper()
	for _, l := range k.goLeaves() {
		path := strings.Join(l.at, ".")
		values := k.goValues(t, path, l.typ)
		rows = append(rows, k.probeValues(t, l.at, values, len(values) > 1 && l.typ.Kind() == reflect.String, func(value any) bool { d, ok := byEnd(k.defaults, path); return ok && fmt.Sprint(value) == d }))
	}
	return rows
}

// goLeaves lists the fields of a kind: of its spec, or of the whole object without its header and metadata.
func (k fieldKind) goLeaves() []goLeaf {
	typ := reflect.TypeOf(k.object)
	if !k.whole {
		spec, _ := typ.FieldByName("Spec")
		return k.leavesOf(spec.Type, nil, nil)
	}
	var out []goLeaf
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Type != reflect.TypeFor[metav1.TypeMeta]() && f.Type != reflect.TypeFor[metav1.ObjectMeta]() {
			out = append(out, k.leavesOfField(f, nil, []reflect.Type{typ})...)
		}
	}
	return out
}

func (k fieldKind) leavesOf(typ reflect.Type, at []string, above []reflect.Type) (out []goLeaf) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case k.hasSample(at) && at != nil, typ.Kind() != reflect.Struct, typ == reflect.TypeFor[intstr.IntOrString](), reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return []goLeaf{{slices.Clone(at), typ}}
	case slices.Contains(above, typ):
		return nil
	}
	above = append(slices.Clone(above), typ)
	for i := range typ.NumField() {
		out = append(out, k.leavesOfField(typ.Field(i), at, above)...)
	}
	return out
}

func (k fieldKind) leavesOfField(f reflect.StructField, at []string, above []reflect.Type) []goLeaf {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" || !f.IsExported():
		return nil
	case name == "" && f.Anonymous:
		return k.leavesOf(f.Type, at, above)
	}
	typ := f.Type
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8 {
		name, typ = name+"[]", typ.Elem()
	}
	return k.leavesOf(typ, append(slices.Clone(at), name), above)
}

// goValues returns the values that a field is set to: a sample's, or those of its type.
func (k fieldKind) goValues(t *testing.T, path string, typ reflect.Type) []any {
	t.Helper()
	if values, ok := k.sampled(t, path); ok {
		return values
	}
	switch typ.Kind() {
	case reflect.Bool:
		return []any{true, false}
	case reflect.Map:
		return []any{map[string]any{"k": k.goValues(t, "", typ.Elem())[0]}}
	case reflect.Slice:
		return []any{"YQ=="}
	case reflect.String:
		return []any{"x"}
	case reflect.Struct:
		if typ == reflect.TypeFor[metav1.Time]() {
			return []any{"2026-01-01T00:00:00Z"}
		}
		return []any{"1"}
	}
	return []any{7}
}
