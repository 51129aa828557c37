package salvage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// If no version of a VirtualService, HTTPRoute or GRPCRoute was ever valid, an invalid rule costs only itself:
// requests that match it are answered with an error, as the Gateway API requires for rules without a backend, and
// the other rules apply. Such requests must not fall through to a later rule, which is usually wider and may lead
// past the purpose of the invalid rule, for example to /admin. If a condition of a match is invalid, the rule
// applies to all requests that meet the other conditions of that match. If these match almost everything, the object is
// not used at all, because the rule would answer every request.

// routeFields is how a kind of routes writes down its rules of HTTP.
type routeFields struct {
	rules, match string // lists: in spec, and in a rule
	path         string // the condition on paths
	// narrow are conditions; at least one of them must remain.
	narrow []string
	// refuse are the fields of a rule that answers with an error.
	refuse map[string]any
}

var routeKinds = map[model.Kind]routeFields{
	model.KindVirtualService: {
		"http", "match", "uri", []string{"uri", "headers", "queryParams"}, map[string]any{"directResponse": map[string]any{"status": 500}},
	},
	// Rules of these kinds answer with an error if they have no backend.
	model.KindHTTPRoute: {"rules", "matches", "path", []string{"path", "headers", "queryParams"}, nil},
	model.KindGRPCRoute: {"rules", "matches", "", []string{"method", "headers"}, nil},
}

// salvageRoute is partial for routes.
func salvageRoute(kind model.Kind, document []byte, problems problem.List, decode func([]byte) (model.Object, problem.List)) *Result {
	form, refused := routeKinds[kind], map[int]bool{}
	for range maxSalvages {
		if !problems.HasErrors() {
			return nil
		}
		var top map[string]any
		_ = json.Unmarshal(document, &top) // it was decoded a moment ago
		spec, _ := top["spec"].(map[string]any)
		rules, _ := spec[form.rules].([]any)
		if !form.salvage(rules, problems, refused) || len(refused) == len(rules) {
			return nil
		}
		mended, err := json.Marshal(top)
		if err != nil || bytes.Equal(mended, document) {
			return nil
		}
		note := problem.Problem{Severity: problem.SeverityWarning, Code: code.PartlyUsed, Object: problems[0].Object, Message: form.meanwhile(refused)}
		var o model.Object
		if o, problems = decode(mended); o != nil && !problems.HasErrors() {
			return &Result{Object: o, Note: note}
		}
		document = mended
	}
	return nil
}

// salvage makes invalid rules answer with an error. It reports false if an error is outside of the rules, or if it
// is unknown which requests a rule matches.
func (f *routeFields) salvage(rules []any, problems problem.List, refused map[int]bool) bool {
	var widened []map[string]any
	for _, p := range problems {
		if p.Severity != problem.SeverityError {
			continue
		}
		at, _ := problem.Steps(p.Field)
		if len(at) < 3 || at[0].Name != "spec" || at[1].Name != f.rules || at[2].Index < 0 {
			return false
		}
		rule, ok := element(rules, at[2].Index).(map[string]any)
		if !ok {
			return false
		}
		refused[at[2].Index] = true
		rules[at[2].Index] = f.refusing(rule)
		if way := at[3:]; len(way) > 0 && way[0].Name == f.match {
			match, ok := f.widen(rule, way[1:])
			if !ok {
				return false
			}
			widened = append(widened, match)
		}
	}
	return !slices.ContainsFunc(widened, func(match map[string]any) bool {
		prune(match)
		return !slices.ContainsFunc(f.narrow, func(c string) bool { return saysSomething(match[c]) })
	})
}

// refusing returns a rule that matches the same requests and answers with an error.
func (f *routeFields) refusing(rule map[string]any) map[string]any {
	out := maps.Clone(f.refuse)
	if out == nil {
		out = map[string]any{}
	}
	if m, ok := rule[f.match]; ok {
		out[f.match] = m
	}
	return out
}

// widen marks a condition with errors in one of a rule's matches as cut out, with all that cannot be separated from it.
func (f *routeFields) widen(rule map[string]any, way []problem.Step) (match map[string]any, ok bool) {
	matches, _ := rule[f.match].([]any)
	if len(way) < 2 {
		return nil, false
	}
	if match, ok = element(matches, max(way[0].Index, 0)).(map[string]any); !ok {
		return nil, false
	}
	name, inner := way[1].Name, problem.Step{Index: -1}
	if len(way) > 2 {
		inner = way[2]
	}
	switch condition := match[name].(type) {
	case map[string]any:
		_, there := condition[inner.Name]
		switch {
		case name == f.path && f.literal(condition):
		case there && slices.Contains([]string{"headers", "withoutHeaders", "queryParams"}, name):
			condition[inner.Name] = cutOut{}
		default:
			match[name] = cutOut{}
		}
	case []any:
		if inner.Index < 0 || inner.Index >= len(condition) {
			match[name] = cutOut{}
			break
		}
		condition[inner.Index] = cutOut{}
	default:
		match[name] = cutOut{}
	}
	return match, true
}

// prune takes away what was cut out of a match.
func prune(match map[string]any) {
	maps.DeleteFunc(match, func(_ string, c any) bool { return isCut(c) })
	for name, condition := range match {
		switch c := condition.(type) {
		case map[string]any:
			maps.DeleteFunc(c, func(_ string, v any) bool { return isCut(v) })
		case []any:
			match[name] = slices.DeleteFunc(c, isCut)
		}
	}
}

// saysSomething reports whether a condition is one, and not for every path.
func saysSomething(condition any) bool {
	switch c := condition.(type) {
	case map[string]any:
		for _, v := range c {
			if v == "/" || v == "" {
				return false
			}
		}
		return len(c) > 0
	case []any:
		return len(c) > 0
	}
	return false
}

// literal has a path's expression with errors be the prefix that it begins with, which all paths have
// that it can have meant. false: there is none.
func (f *routeFields) literal(path map[string]any) bool {
	text, istio := path["regex"].(string)
	if !istio && path["type"] == "RegularExpression" {
		text, _ = path["value"].(string)
	}
	prefix := literalPrefix(text)
	if !istio {
		prefix = prefix[:max(strings.LastIndexByte(prefix, '/'), 0)] // of whole elements
	}
	clear(path)
	if len(prefix) < 2 || prefix[0] != '/' {
		return false
	}
	if istio {
		path["prefix"] = prefix
	} else {
		path["type"], path["value"] = "PathPrefix", prefix
	}
	return true
}

// literalPrefix is what all texts begin with that an expression is for, right or wrong: of one with alternatives
// nothing is known, and of a character that is repeated not whether it is there at all.
func literalPrefix(expression string) string {
	if strings.Contains(expression, "|") {
		return ""
	}
	text := strings.TrimPrefix(expression, "^")
	end := strings.IndexAny(text, `\.+*?()|[]{}^$`)
	if end < 0 {
		return text
	}
	if end > 0 && strings.IndexByte("*?{", text[end]) >= 0 {
		end--
	}
	return text[:end]
}

// meanwhile describes what is in force until the object is corrected.
func (f *routeFields) meanwhile(refused map[int]bool) string {
	var names []string
	for _, i := range slices.Sorted(maps.Keys(refused)) {
		names = append(names, string(problem.Path("spec").Field(f.rules).Index(i)))
	}
	return fmt.Sprintf("no valid version is known: until it is corrected, requests that match %s get an error; the other rules apply",
		strings.Join(names, ", "))
}
