package config

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Draft is an object with errors as it is without its invalid fields. It is never in force: analysis finds with it what
// else is wrong, and that references to the object are not.
type Draft struct {
	Object model.Object
	left   []string // the fields that were left out
}

// Concerns reports whether a problem of the draft may be a consequence of its missing fields.
func (d *Draft) Concerns(p problem.Problem) bool { return follows(p, d.left) }

// maxDrafts bounds how often fields are left out: without them, other fields may be invalid.
const maxDrafts = 4

// draft makes the draft of a document with errors, and adds the problems that its errors hide: an error in the schema
// stops the other checks. typed: the document fits its type, so that all other checks were made.
func (d Decoder) draft(kind apiKind, out *Decoded, typed bool) {
	problems, draft := out.Problems, &Draft{}
	var top map[string]any
	if !problems.HasErrors() || json.Unmarshal(out.Content, &top) != nil {
		return
	}
	for range maxDrafts {
		if !draft.leaveOut(top, problems) {
			return
		}
		content, err := json.Marshal(top)
		object := newTyped(kind.model())
		if err != nil || json.Unmarshal(content, object) != nil {
			return
		}
		object.SetNamespace(out.Key.Namespace)
		draft.Object, problems = d.FromTyped(object)
		if !typed {
			typed = true
			out.Problems = append(out.Problems, slices.DeleteFunc(slices.Clone(problems), draft.Concerns)...)
		}
		if !problems.HasErrors() {
			if draft.Object != nil { // not a kind without an object
				out.Draft = draft
			}
			return
		}
	}
}

// leaveOut removes the fields with errors from a document. It reports whether it changed it.
func (d *Draft) leaveOut(top map[string]any, problems problem.List) (changed bool) {
	var fields [][]problem.Step
	for _, p := range problems {
		if steps, ok := problem.Steps(p.Field); ok && p.Severity == problem.SeverityError && len(steps) > 1 {
			fields = append(fields, steps)
		}
	}
	slices.SortFunc(fields, func(a, b []problem.Step) int { return slices.CompareFunc(b, a, compareSteps) }) // the last element of a list first
	fields = slices.CompactFunc(fields, func(a, b []problem.Step) bool { return slices.Equal(a, b) })
	for _, steps := range fields {
		if removed, at := remove(top, steps); at != "" {
			changed = changed || removed
			d.left = append(d.left, at)
		}
	}
	return changed
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
// in it, or about something that is missing beside it. A match without its field takes requests of other rules.
func follows(p problem.Problem, missing []string) bool {
	list, _, _ := strings.Cut(p.Field, "[")
	lacks := p.Code == code.MissingField || p.Code == code.EmptyValue
	return slices.ContainsFunc(missing, func(m string) bool {
		return p.Code == code.RuleNeverUsed && within(m, list) || within(m, p.Field) || within(p.Field, m) || lacks && (p.Field == "" || parentOf(m) == parentOf(p.Field) || within(parentOf(m), p.Field))
	})
}

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
