package arch

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
)

// fieldKind is a kind of Istio's whose fields are probed one by one.
type fieldKind struct {
	title, apiVersion, kind string
	message                 protoreflect.ProtoMessage
	object                  any               // instead of message: an object of Kubernetes' APIs, whose fields are its Go type's
	defaults                map[string]string // of object: values that ask for what holds anyway, by the end of a field's path
	rest                    string            // of object: why most of its fields concern no proxy; empty: each has a reason
	whole                   bool              // specs are whole objects without header and metadata, and not their field spec
	base                    string            // a spec that is valid
	bases                   map[string]string // further specs, by the path of the fields that need them; the longest wins
	beside                  map[string]string // fields that a message needs, by the end of its path
	samples                 map[string]string // a YAML list of values, by the end of a field's path
}

// effect is what the mesh does with a field or a value.
type effect string

const (
	honoured effect = "honoured"
	partly   effect = "partly honoured"
	ignored  effect = "ignored, with a warning"
	refused  effect = "refused"
	silent   effect = "no effect"
)

// bestFirst orders effects.
var bestFirst = []effect{honoured, partly, ignored, silent, refused}

// fieldRow is a row of the reference.
type fieldRow struct {
	path   string
	effect effect
	as     string // the path of the message whose fields these are, too
	notes  []string
}

// probe is a decoder's answer to a document.
type probe struct {
	model    any // the object
	problems problem.List
}

// probes holds the answers by document: most fields are probed in the same few documents.
var probes = map[string]probe{}

func (k fieldKind) decode(t *testing.T, spec any) probe {
	t.Helper()
	var doc any = map[string]any{
		"apiVersion": k.apiVersion, "kind": k.kind, "metadata": map[string]any{"name": "a", "namespace": "b"}, "spec": spec,
	}
	if k.kind == "ConfigMap" {
		mesh, err := json.Marshal(spec)
		require.NoError(t, err)
		doc = map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "istio", "namespace": "istio-system"},
			"data": map[string]any{"mesh": string(mesh)},
		}
	}
	if k.whole {
		top := map[string]any{"apiVersion": k.apiVersion, "kind": k.kind, "metadata": map[string]any{"name": "a", "namespace": "b"}}
		for name, value := range spec.(map[string]any) {
			if fields, ok := value.(map[string]any); ok && name == "metadata" {
				maps.Copy(top[name].(map[string]any), fields)
				continue
			}
			top[name] = value
		}
		doc = top
	}
	text, err := yaml.Marshal(doc)
	require.NoError(t, err)
	p, known := probes[string(text)]
	if !known {
		p.model, p.problems = config.Decoder{Domain: "cluster.local", Getenv: func(name string) string { return "value of " + name }}.FromYAML(text)
		probes[string(text)] = p
	}
	return p
}

// added lists the problems of p that before does not have. Lines move, so they do not count.
func (p probe) added(before probe) (out problem.List) {
	for _, found := range p.problems {
		if !slices.ContainsFunc(before.problems, func(b problem.Problem) bool { return b.Field == found.Field && b.Message == found.Message }) {
			out = append(out, found)
		}
	}
	return out
}

func fromYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &out), text)
	return out
}

// basesOf returns the documents that a field is set in: several, where its values need different fields beside them.
func (k fieldKind) basesOf(t *testing.T, path string) (docs []map[string]any) {
	texts, longest := k.base, ""
	for prefix, spec := range k.bases {
		if (path == prefix || strings.HasPrefix(path, prefix+".")) && len(prefix) > len(longest) {
			texts, longest = spec, prefix
		}
	}
	for text := range strings.SplitSeq(texts, "\n---\n") {
		doc := fromYAML(t, text)
		names := strings.Split(path, ".")
		for _, ending := range []string{" beside", ""} {
			for n := range names {
				prefix, at := strings.Join(names[:n+1], "."), names[:n+1]
				if ending != "" {
					at = names[:n]
				}
				if len(prefix) < len(longest) || longest == path || len(at) == len(names) {
					continue
				}
				for _, table := range []map[string]string{k.beside, commonBeside} {
					if fields, ok := byEnd(table, prefix+ending); ok {
						add(doc, at, fromYAML(t, fields))
					}
				}
			}
		}
		clear := func(fields map[string]any) { maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil }) }
		everyMap(doc, clear)
		docs = append(docs, doc)
	}
	return docs
}

// everyMap visits a document's objects.
func everyMap(value any, visit func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		visit(value)
		for _, v := range value {
			everyMap(v, visit)
		}
	case []any:
		for _, v := range value {
			everyMap(v, visit)
		}
	}
}

// byEnd finds the entry whose key is the longest end of path.
func byEnd(table map[string]string, path string) (text string, ok bool) {
	longest := ""
	for end := range table {
		if (path == end || strings.HasSuffix(path, "."+end)) && len(end) > len(longest) {
			longest = end
		}
	}
	return table[longest], longest != ""
}

// add sets fields of the message at a path, where they are not set.
func add(in map[string]any, at []string, fields map[string]any) {
	for _, name := range at {
		name, list := strings.CutSuffix(name, "[]")
		next, rest := map[string]any{}, []any(nil)
		switch there := in[name].(type) {
		case map[string]any:
			next = there
		case []any:
			next, rest = there[0].(map[string]any), there[1:]
		}
		in[name] = next
		if list {
			in[name] = append([]any{next}, rest...)
		}
		in = next
	}
	for name, value := range fields {
		if _, there := in[name]; !there {
			in[name] = value
		}
	}
}

// probeField sets one field alone, to each value that it may have, and reports what comes of it.
func (k fieldKind) probeField(t *testing.T, at []string, f protoreflect.FieldDescriptor) fieldRow {
	t.Helper()
	values := k.valuesOf(t, strings.Join(at, "."), f)
	return k.probeValues(t, at, values, f.Kind() == protoreflect.EnumKind, func(value any) bool { return isDefault(f, value) })
}

// probeValues sets one field alone to each of some values.
func (k fieldKind) probeValues(t *testing.T, at []string, values []any, enum bool, isDefault func(any) bool) fieldRow {
	t.Helper()
	row := fieldRow{path: strings.Join(at, ".")}
	seen := map[effect][]string{}
	messages := map[effect]string{}
	for _, value := range values {
		best, why := refused, ""
		for i, doc := range k.basesOf(t, row.path) {
			remove(doc, at)
			before := k.decode(t, doc)
			set(doc, at, value)
			e, message := judge(before, k.decode(t, doc), row.path)
			if e == silent && isDefault(value) {
				e = honoured
			}
			if i == 0 || slices.Index(bestFirst, e) < slices.Index(bestFirst, best) {
				best, why = e, message
			}
		}
		seen[best] = append(seen[best], fmt.Sprint(value))
		if messages[best] == "" {
			messages[best] = why
		}
	}
	row.effect = overall(seen)
	for _, e := range []effect{ignored, refused} {
		switch {
		case len(seen[e]) == 0:
		case len(seen[e]) == len(values):
			row.notes = append(row.notes, messages[e])
		case enum:
			row.notes = append(row.notes, fmt.Sprintf("%s: %s: %s", codes(seen[e]), e, messages[e]))
		case e == ignored && row.effect == partly, e == row.effect:
			row.notes = append(row.notes, messages[e])
		}
	}
	return row
}

// isDefault reports whether a value of an enumeration is its default.
func isDefault(f protoreflect.FieldDescriptor, value any) bool {
	return f.Kind() == protoreflect.EnumKind && !f.IsList() && value == string(f.Enum().Values().Get(0).Name())
}

func codes(values []string) string { return "`" + strings.Join(values, "`, `") + "`" }

// judge compares the document without the field with the one that has it.
func judge(before, after probe, path string) (effect, string) {
	var warning string
	for _, p := range after.added(before) {
		if p.Severity == problem.SeverityError {
			return refused, message(p, path)
		}
		if p.Severity == problem.SeverityWarning && warning == "" {
			warning = message(p, path)
		}
	}
	changed := !reflect.DeepEqual(before.model, after.model)
	switch {
	case changed && (warning == "" || strings.Contains(warning, "deprecated")):
		return honoured, ""
	case warning != "":
		return ignored, warning
	}
	for _, p := range after.problems { // the message that the field is in has no effect
		if p.Severity == problem.SeverityWarning && strings.HasPrefix(strings.ReplaceAll(path, "[]", ""), strings.ReplaceAll(plainField(p), "[]", "")+".") && strings.Contains(p.Message, "no effect") {
			return ignored, message(p, path)
		}
	}
	return silent, ""
}

// plainField is the path of a problem's field, without numbers and what all paths begin with.
func plainField(p problem.Problem) string {
	field := index.ReplaceAllString(p.Field, "[]")
	return strings.TrimPrefix(strings.TrimPrefix(field, "spec."), "data.mesh.")
}

var index = regexp.MustCompile(`\[\d+\]`)

// message is a problem's text; it names the field where that is another one.
func message(p problem.Problem, path string) string {
	field := plainField(p)
	if strings.TrimSuffix(field, "[]") == strings.TrimPrefix(strings.TrimSuffix(path, "[]"), "spec.") || field == "" || field == "spec" {
		return p.Message
	}
	return "`" + field + "` " + p.Message
}

func overall(seen map[effect][]string) effect {
	switch {
	case len(seen[honoured]) > 0 && len(seen[ignored]) > 0:
		return partly
	case len(seen[honoured]) > 0:
		return honoured
	case len(seen[ignored]) > 0:
		return ignored
	case len(seen[refused]) > 0:
		return refused
	}
	return silent
}

// set puts a value at a path, whose names end with "[]" where they are lists of one element.
func set(in map[string]any, at []string, value any) {
	name, list := strings.CutSuffix(at[0], "[]")
	if len(at) == 1 {
		if list {
			value = []any{value}
		}
		in[name] = value
		return
	}
	next, rest := map[string]any{}, []any(nil)
	switch there := in[name].(type) {
	case map[string]any:
		next = there
	case []any:
		if len(there) > 0 {
			next, rest = there[0].(map[string]any), there[1:]
		}
	}
	set(next, at[1:], value)
	if list {
		in[name] = append([]any{next}, rest...)
	} else {
		in[name] = next
	}
}

// remove takes away what is at a path.
func remove(in map[string]any, at []string) {
	name := strings.TrimSuffix(at[0], "[]")
	if len(at) == 1 {
		delete(in, name)
		return
	}
	switch there := in[name].(type) {
	case map[string]any:
		remove(there, at[1:])
	case []any:
		if len(there) > 0 {
			remove(there[0].(map[string]any), at[1:])
		}
	}
}

// valuesOf returns the values that a field is set to: a sample's, or those of its type.
func (k fieldKind) valuesOf(t *testing.T, path string, f protoreflect.FieldDescriptor) []any {
	if values, ok := k.sampled(t, path); ok {
		return values
	}
	if f.IsMap() {
		return []any{map[string]any{"k": first(f.MapValue())}}
	}
	return scalars(f)
}

// sampled returns the values of a field's sample.
func (k fieldKind) sampled(t *testing.T, path string) ([]any, bool) {
	for _, samples := range []map[string]string{k.samples, commonSamples} {
		if text, ok := byEnd(samples, path); ok {
			var out []any
			require.NoError(t, yaml.Unmarshal([]byte(text), &out), text)
			return out, true
		}
	}
	return nil, false
}

func first(f protoreflect.FieldDescriptor) any {
	if values := scalars(f); len(values) > 0 {
		return values[0]
	}
	return map[string]any{}
}

var wellKnownValues = map[protoreflect.FullName][]any{
	"google.protobuf.Duration": {"3s"}, "google.protobuf.BoolValue": {true, false}, "google.protobuf.Int32Value": {7},
	"google.protobuf.UInt32Value": {7}, "google.protobuf.Int64Value": {7}, "google.protobuf.UInt64Value": {7},
	"google.protobuf.DoubleValue": {7}, "google.protobuf.StringValue": {"x"}, "google.protobuf.Struct": {map[string]any{"a": "b"}},
}

// scalars returns values of a field without fields; nil for a message that has some.
func scalars(f protoreflect.FieldDescriptor) []any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		if f.Message().Fields().Len() == 0 {
			return []any{map[string]any{}}
		}
		return wellKnownValues[f.Message().FullName()]
	case protoreflect.EnumKind:
		var out []any
		for i := range f.Enum().Values().Len() {
			out = append(out, string(f.Enum().Values().Get(i).Name()))
		}
		return out
	case protoreflect.BoolKind:
		return []any{true, false}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return []any{"x"}
	}
	return []any{7}
}

// rows probes each field of a kind.
func (k fieldKind) rows(t *testing.T) []fieldRow {
	t.Helper()
	if k.object != nil {
		return k.goRows(t)
	}
	return k.rowsOf(t, k.message.ProtoReflect().Descriptor(), nil, nil)
}

func (k fieldKind) rowsOf(t *testing.T, m protoreflect.MessageDescriptor, at []string, above []protoreflect.FullName) (out []fieldRow) {
	t.Helper()
	above = append(slices.Clone(above), m.FullName())
	fields := m.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := f.JSONName()
		if f.IsList() {
			name += "[]"
		}
		path := append(slices.Clone(at), name)
		switch {
		case f.IsMap() || f.Kind() != protoreflect.MessageKind || scalars(f) != nil || k.hasSample(path):
			out = append(out, k.probeField(t, path, f))
		case !slices.Contains(above, f.Message().FullName()):
			out = append(out, k.rowsOf(t, f.Message(), path, above)...)
		}
	}
	return out
}

func (k fieldKind) hasSample(at []string) bool {
	_, ok := byEnd(k.samples, strings.Join(at, "."))
	return ok
}

// fold replaces the fields of a message that is there twice, with the same effects and notes, by one row.
func fold(rows []fieldRow) []fieldRow {
	var out []fieldRow
	groups := map[string][]fieldRow{}
	var order []string
	for _, r := range rows {
		for p := r.path; strings.Contains(p, "."); {
			p = p[:strings.LastIndex(p, ".")]
			if groups[p] == nil {
				order = append(order, p)
			}
			groups[p] = append(groups[p], r)
		}
	}
	shape := func(p string) string {
		var b strings.Builder
		for _, r := range groups[p] {
			notes := strings.ReplaceAll(strings.Join(r.notes, "; "), "`"+p+".", "`") // a note may name a field beside this one
			fmt.Fprintln(&b, strings.TrimPrefix(r.path, p+"."), r.effect, notes)
		}
		return b.String()
	}
	same := map[string]string{} // path to the path that it is the same as
	firstOf := map[string]string{}
	slices.SortStableFunc(order, func(a, b string) int { return strings.Count(a, ".") - strings.Count(b, ".") })
	for _, p := range order {
		if len(groups[p]) < 4 || slices.ContainsFunc(slices.Collect(maps.Keys(same)), func(s string) bool { return strings.HasPrefix(p, s+".") }) {
			continue
		}
		s := shape(p)
		if other, ok := firstOf[s]; ok {
			same[p] = other
		} else {
			firstOf[s] = p
		}
	}
	done := map[string]bool{}
rows:
	for _, r := range rows {
		for p, other := range same {
			if strings.HasPrefix(r.path, p+".") {
				if !done[p] {
					out = append(out, fieldRow{path: p + ".*", as: other + ".*"})
					done[p] = true
				}
				continue rows
			}
		}
		out = append(out, r)
	}
	return out
}

// sum replaces the fields of a message that all come to the same, for the same reason, by one row.
func sum(rows []fieldRow) []fieldRow {
	var out []fieldRow
	for i := 0; i < len(rows); {
		r := rows[i]
		n, at := 1, ""
		for p := r.path; r.effect == ignored && strings.Contains(p, "."); {
			p = p[:strings.LastIndex(p, ".")]
			below := slices.IndexFunc(rows[i:], func(o fieldRow) bool { return !strings.HasPrefix(o.path, p+".") })
			if below < 0 {
				below = len(rows) - i
			}
			whole := i == 0 || !strings.HasPrefix(rows[i-1].path, p+".")
			if !whole || slices.ContainsFunc(rows[i:i+below], func(o fieldRow) bool { return o.effect != ignored || !slices.Equal(o.notes, r.notes) }) {
				break
			}
			n, at = below, p
		}
		if at != "" {
			r.path = at + ".*"
			for j, note := range r.notes {
				r.notes[j] = strings.TrimPrefix(note, "`"+at+"` ")
			}
		}
		out = append(out, r)
		i += n
	}
	return out
}
