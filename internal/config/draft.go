package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// Draft is an object with errors, as far as it can be read: obvious corrections are made, and fields of the wrong type are left
// out. It is never in force: analysis finds with it what else is wrong, and that references to the object are not.
type Draft struct {
	Object model.Object
	left   []string // the fields that were left out
	// invalid are the other fields with errors, and whether something is missing there.
	invalid map[string]bool
}

// Concerns reports whether a problem of the draft may be a consequence of its errors.
func (d *Draft) Concerns(p problem.Problem) bool {
	if follows(p, d.left) {
		return true
	}
	for field, missing := range d.invalid {
		switch {
		case p.Field == field, missing && within(p.Field, field), !within(p.Field, field) && follows(p, []string{field}):
			return true
		}
	}
	return false
}

// draft makes the draft of a document with errors, and adds the problems that its errors hide: an error in the schema
// stops the other checks. typed: the document fits its type, so that all other checks were made.
func (d Decoder) draft(kind apiKind, out *Decoded, typed bool) {
	var top map[string]any
	if !out.Problems.HasErrors() || json.Unmarshal(out.Content, &top) != nil {
		return
	}
	draft := &Draft{invalid: map[string]bool{}}
	if !typed && !draft.fit(out, top, schema.OfType(reflect.TypeOf(newTyped(kind.model())))) {
		return
	}
	object, problems := d.incomplete(kind, out.Key.Namespace, top)
	if !typed {
		draft.add(out, top, problems)
	}
	if draft.leaveOut(top, problems) {
		object, problems = d.incomplete(kind, out.Key.Namespace, top)
	}
	for _, f := range faultsOf(problems) {
		draft.invalid[f.Field] = draft.invalid[f.Field] || isLack(f.Code)
	}
	if draft.Object = object; object != nil { // not a kind without an object
		out.Draft = draft
	}
}

// incomplete decodes a document, also one with errors.
func (d Decoder) incomplete(kind apiKind, namespace string, top map[string]any) (model.Object, problem.List) {
	object := newTyped(kind.model())
	if content, err := json.Marshal(top); err != nil || json.Unmarshal(content, object) != nil {
		return nil, nil
	}
	object.SetNamespace(namespace)
	return d.converted(object)
}

// maxCorrections bounds how often fields are corrected: what a corrected field contains may have errors, too.
const maxCorrections = 4

// fit changes a document until it fits its type, and adds the problems that come to light. It reports whether the document fits.
func (d *Draft) fit(out *Decoded, top map[string]any, s *schema.Schema) bool {
	problems := out.Problems
	for range maxCorrections {
		if !d.correct(top, s, problems) {
			return false
		}
		problems = checkTree(out.Key, top, s)
		d.add(out, top, problems)
		if !problems.HasErrors() {
			return true
		}
	}
	return false
}

// checkTree compares a document with the schema of its kind.
func checkTree(k model.Key, top map[string]any, s *schema.Schema) problem.List {
	content, err := json.Marshal(top)
	var n yaml.Node
	if err != nil || yaml.Unmarshal(content, &n) != nil {
		return problem.List{{Severity: problem.SeverityError, Code: code.Unreadable}}
	}
	r := &problem.Report{Object: k}
	schema.Check(r, "", &n, s)
	if k.Kind == model.KindSecret {
		kube.HideSecrets(r.Problems)
	}
	return r.Problems
}

// add adds the problems of a changed document that are not consequences of its errors.
func (d *Draft) add(out *Decoded, top map[string]any, problems problem.List) {
	for _, p := range problems {
		known := slices.ContainsFunc(out.Problems, func(o problem.Problem) bool { return o.Field == p.Field })
		if !known && !d.Concerns(p) && !d.lacks(top, p.Field) {
			out.Problems = append(out.Problems, p)
		}
	}
}

// lacks reports whether a document lacks a field beside one that was left out: it may have been meant.
func (d *Draft) lacks(top map[string]any, field string) bool {
	steps, ok := problem.Steps(field)
	return ok && valueAt(top, steps) == nil && slices.ContainsFunc(d.left, func(m string) bool { return parentOf(m) == parentOf(field) })
}

// fault is an error of a field.
type fault struct {
	problem.Problem
	steps []problem.Step
}

// faultsOf returns the errors of fields, the last element of a list first.
func faultsOf(problems problem.List) []fault {
	var out []fault
	for _, p := range problems {
		if steps, ok := problem.Steps(p.Field); ok && p.Severity == problem.SeverityError && len(steps) > 1 {
			out = append(out, fault{p, steps})
		}
	}
	slices.SortStableFunc(out, func(a, b fault) int { return slices.CompareFunc(b.steps, a.steps, compareSteps) })
	return slices.CompactFunc(out, func(a, b fault) bool { return a.Field == b.Field })
}

// correct corrects the fields of a document that have the wrong name or type, or removes them. It reports whether it changed it.
func (d *Draft) correct(top map[string]any, s *schema.Schema, problems problem.List) (changed bool) {
	for _, f := range faultsOf(problems) {
		if repair(top, f, s) {
			changed, d.invalid[f.Field] = true, false
		} else if d.remove(top, f) {
			changed = true
		}
	}
	return changed
}

// leaveOut removes the invalid values of a document, but not the objects and lists that have valid parts. It reports whether it
// changed it.
func (d *Draft) leaveOut(top map[string]any, problems problem.List) (changed bool) {
	for _, f := range faultsOf(problems) {
		if f.Code == code.ExclusiveFields || isScalar(top, f.steps) {
			changed = d.remove(top, f) || changed
		}
	}
	return changed
}

func (d *Draft) remove(top map[string]any, f fault) bool {
	removed, at := remove(top, f.steps)
	if at != "" {
		d.left = append(d.left, at)
	}
	return removed
}

// isScalar reports whether a field of a document is text, a number or a bool.
func isScalar(top map[string]any, steps []problem.Step) bool {
	switch valueAt(top, steps).(type) {
	case nil, map[string]any, []any:
		return false
	}
	return true
}

// valueAt returns the value of a field of a document; nil: it has none.
func valueAt(value any, steps []problem.Step) any {
	for _, s := range steps {
		list, _ := value.([]any)
		object, _ := value.(map[string]any)
		switch {
		case s.Index < 0:
			value = object[spelled(object, s.Name)]
		case s.Index < len(list):
			value = list[s.Index]
		default:
			return nil
		}
	}
	return value
}

// repair makes the obvious correction of a field: another name or value, or a list of what should be its only element.
func repair(top map[string]any, f fault, s *schema.Schema) bool {
	fix := f.Fix
	parent, name := parentIn(top, f.steps)
	value, found := parent[name]
	_, taken := parent[fix.Name]
	_, object := value.(map[string]any)
	switch {
	case !found:
		return false
	case fix.Name != "":
		if taken {
			return false
		}
		delete(parent, name)
		parent[fix.Name] = value
	case fix.Number && json.Valid([]byte(fix.Value)):
		parent[name] = json.Number(fix.Value)
	case fix.Value != "" && !fix.Number:
		parent[name] = fix.Value
	case object && s.HasList(f.steps):
		parent[name] = []any{value}
	default:
		return false
	}
	return true
}

// parentIn returns the object with a field, and its key there; nil: there is none.
func parentIn(value any, steps []problem.Step) (parent map[string]any, key string) {
	for i, s := range steps {
		if s.Index >= 0 {
			list, _ := value.([]any)
			if s.Index >= len(list) {
				return nil, ""
			}
			value = list[s.Index]
			continue
		}
		object, _ := value.(map[string]any)
		if key = spelled(object, s.Name); i == len(steps)-1 {
			return object, key
		}
		value = object[key]
	}
	return nil, ""
}

func compareSteps(a, b problem.Step) int {
	if a.Index != b.Index {
		return a.Index - b.Index
	}
	return strings.Compare(a.Name, b.Name)
}

// remove removes a field of a document. at is the field whose content differs then: of an element, the list.
func remove(value any, steps []problem.Step) (removed bool, at string) {
	path := problem.Path("")
	for i, s := range steps {
		last := i == len(steps)-1 || steps[i+1].Index >= 0 && i+1 == len(steps)-1
		parent, ok := value.(map[string]any)
		switch {
		case s.Index >= 0:
			list, ok := value.([]any)
			if !ok || s.Index >= len(list) {
				return false, string(path)
			}
			value, path = list[s.Index], path.Index(s.Index)
			continue
		case !ok:
			return false, string(path)
		}
		path = path.Key(s.Name)
		name := spelled(parent, s.Name)
		if !last {
			value = parent[name]
			continue
		}
		list, isList := parent[name].([]any)
		if index := steps[len(steps)-1].Index; isList && index >= 0 && index < len(list) && len(list) > 1 {
			parent[name] = slices.Delete(slices.Clone(list), index, index+1)
			return true, string(path)
		}
		_, found := parent[name]
		delete(parent, name)
		return found, string(path)
	}
	return false, ""
}

// spelled returns the key of a field in a document, which may be in snake case.
func spelled(object map[string]any, name string) string {
	if _, found := object[name]; found {
		return name
	}
	for key := range object {
		if strings.EqualFold(strings.ReplaceAll(key, "_", ""), name) {
			return key
		}
	}
	return name
}

// follows reports whether a problem may be a consequence of missing fields: it is about one of them, what contains it or is
// in it, or about something that is missing beside it. A match without its field takes requests of other rules. An endpoint without
// its address is none.
func follows(p problem.Problem, missing []string) bool {
	list, _, _ := strings.Cut(p.Field, "[")
	lacks := isLack(p.Code)
	return slices.ContainsFunc(missing, func(m string) bool {
		return p.Code == code.RuleNeverUsed && within(m, list) || p.Code == code.StaticWithoutEndpoints && within(m, "spec.endpoints") || within(m, p.Field) || within(p.Field, m) || lacks && (p.Field == "" || parentOf(m) == parentOf(p.Field) || within(parentOf(m), p.Field))
	})
}

// isLack reports whether a problem is that something is missing.
func isLack(c code.Code) bool { return c == code.MissingField || c == code.EmptyValue }

// within reports whether a field is another one, or in it. The whole object does not count.
func within(field, other string) bool {
	rest, ok := strings.CutPrefix(field, other)
	return ok && other != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func parentOf(field string) string {
	steps, _ := problem.Steps(field)
	var path problem.Path
	for _, s := range steps[:max(0, len(steps)-1)] {
		if s.Index >= 0 {
			path = path.Index(s.Index)
		} else {
			path = path.Key(s.Name)
		}
	}
	return string(path)
}
