package salvage

import (
	"github.com/moonsail/moonsail/internal/config/problem"
)

// cutOut stands for what was cut out of a document.
type cutOut struct{}

func isCut(node any) bool { return node == cutOut{} }

// cut returns node without the value at a path, or without the last existing value on that path. It leaves a mark in lists
// and maps, so that indices stay valid until sweep.
func cut(node any, at []problem.Step) any {
	if len(at) == 0 {
		return cutOut{}
	}
	switch n := node.(type) {
	case cutOut:
		return n
	case map[string]any:
		if v, ok := n[at[0].Name]; ok && at[0].Index < 0 {
			n[at[0].Name] = cut(v, at[1:])
			return n
		}
	case []any:
		if i := at[0].Index; i >= 0 && i < len(n) {
			n[i] = cut(n[i], at[1:])
			return n
		}
	}
	return cutOut{}
}

// sweep removes what was cut out, and values that are empty without it. An empty element of a list of callers or
// operations means any caller or operation, so the whole list is removed with it. A condition without values is
// always true. name is the field whose value node is.
func sweep(node any, name string) any {
	switch n := node.(type) {
	case map[string]any:
		before := len(n)
		for k, v := range n {
			if n[k] = sweep(v, k); isCut(n[k]) {
				delete(n, k)
			}
		}
		_, condition := n["key"]
		if len(n) < before && (len(n) == 0 || condition && n["values"] == nil && n["notValues"] == nil) {
			return cutOut{}
		}
	case []any:
		kept := make([]any, 0, len(n))
		for _, v := range n {
			if v = sweep(v, ""); !isCut(v) {
				kept = append(kept, v)
			}
		}
		if len(kept) < len(n) && (len(kept) == 0 || name == "from" || name == "to") {
			return cutOut{}
		}
		return kept
	}
	return node
}

// byRule sorts the ways to errors in a list of rules by rule; they begin behind it. Where the list itself
// is wrong, it is cut out.
func byRule(spec map[string]any, list string, errors [][]problem.Step) map[int][][]problem.Step {
	out := map[int][][]problem.Step{}
	for _, at := range errors {
		switch {
		case at[0].Name != list:
		case len(at) > 1 && at[1].Index >= 0:
			out[at[1].Index] = append(out[at[1].Index], at[2:])
		default:
			cut(spec, at[:1])
		}
	}
	return out
}

// element is one of a list; nil where there is none.
func element(list []any, i int) any {
	if i >= len(list) {
		return nil
	}
	return list[i]
}
