package preview

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/sample"
	"github.com/moonsail/moonsail/internal/model"
)

// maxOperations bounds the requests for operations of policies.
const maxOperations = 50

// changedPolicies returns the AuthorizationPolicies that differ, as they are on each side.
func (c *comparison) changedPolicies() []*model.AuthorizationPolicy {
	var out []*model.AuthorizationPolicy
	for _, change := range c.report.Objects {
		for _, o := range []*opened{c.before, c.after} {
			if policy, ok := o.compiled.Snapshot().Get(change.Object).(*model.AuthorizationPolicy); ok {
				out = append(out, policy)
			}
		}
	}
	return out
}

// changedOperations returns requests for the operations and header conditions of changed AuthorizationPolicies.
func (c *comparison) changedOperations() []sample.Request {
	var out []sample.Request
	more := false
	for _, policy := range c.changedPolicies() {
		for _, r := range operationsOfPolicy(policy) {
			switch {
			case slices.ContainsFunc(out, r.Equal):
			case len(out) < maxOperations:
				out = append(out, r)
			default:
				more = true
			}
		}
	}
	if more {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf(
			"only %d combinations of methods, paths and headers of changed AuthorizationPolicies are tried: give more calls with --calls", maxOperations))
	}
	return out
}

// operationsOfPolicy returns requests with and without the headers of each rule.
func operationsOfPolicy(p *model.AuthorizationPolicy) []sample.Request {
	var out []sample.Request
	for i := range p.Rules {
		rule := &p.Rules[i]
		headers := headersOf(rule.When)
		var operations []sample.Request
		for _, m := range rule.To {
			operations = append(operations, operationsOf(m)...)
		}
		if len(operations) == 0 && len(headers) > 0 {
			operations = []sample.Request{{Path: "/"}}
		}
		for _, h := range append(headers, nil) {
			for _, o := range operations {
				o.Headers = h
				out = append(out, o)
			}
		}
	}
	return out
}

func operationsOf(m model.AuthorizationMatch) []sample.Request {
	methods, paths := []string{""}, []string{"/"}
	for _, c := range m {
		switch c.Attribute {
		case model.AttributeMethod:
			methods = append(methods, slices.Concat(c.Values, c.Not)...)
		case model.AttributePath:
			for _, p := range slices.Concat(c.Values, c.Not) {
				paths = append(paths, samplePath(p))
			}
		}
	}
	var out []sample.Request
	for _, method := range methods {
		for _, path := range paths {
			out = append(out, sample.Request{Method: strings.TrimSuffix(method, "*"), Path: path})
		}
	}
	return out
}

// headersOf returns the headers of requests that a rule's conditions are about: one set with the first value of each
// header, and one for each other value.
func headersOf(when model.AuthorizationMatch) []map[string]string {
	first := map[string]string{}
	var out []map[string]string
	for _, c := range when {
		if c.Attribute == model.AttributeHeaders && len(c.Names) > 0 && len(c.Values) > 0 {
			first[c.Names[0]] = sampleText(c.Values[0])
		}
	}
	if len(first) > 0 {
		out = append(out, first)
	}
	for _, c := range when {
		if c.Attribute != model.AttributeHeaders || len(c.Names) == 0 {
			continue
		}
		for _, v := range slices.Concat(c.Values, c.Not) {
			h := maps.Clone(first)
			h[c.Names[0]] = sampleText(v)
			if !slices.ContainsFunc(out, func(o map[string]string) bool { return maps.Equal(o, h) }) {
				out = append(out, h)
			}
		}
	}
	return out
}

// sampleText returns a text that a value of a policy matches: exact, "prefix*", "*suffix" or "*".
func sampleText(v string) string { return strings.Replace(v, "*", "any", 1) }

// samplePath returns a path that a pattern of a policy matches.
func samplePath(p string) string {
	p = strings.NewReplacer("{*}", "any", "{**}", "any", "*", "any").Replace(p)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p
}

// tried reports whether the calls that are made up vary an attribute. Their callers have different identities, and they go to all
// ports.
func tried(a model.Attribute) bool {
	switch a {
	case model.AttributeMethod, model.AttributePath, model.AttributeHeaders, model.AttributeDestinationPort:
		return true
	}
	return a.FromPeer()
}

// untriedConditions returns the attributes in conditions of changed AuthorizationPolicies for which no call is made up.
func (c *comparison) untriedConditions() []string {
	var out []string
	add := func(m model.AuthorizationMatch) {
		for _, condition := range m {
			if a := condition.Attribute; !tried(a) {
				out = append(out, strings.TrimSuffix(string(a), "."))
			}
		}
	}
	for _, p := range c.changedPolicies() {
		for _, rule := range p.Rules {
			add(rule.When)
			for _, m := range slices.Concat(rule.From, rule.To) {
				add(m)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
