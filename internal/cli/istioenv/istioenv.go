// Package istioenv lists the environment variables of Istio's programs that never have an effect in Moonsail, with the
// reason. The command that reads a variable has those with an effect: cli/serve for istiod, cli/agent for Istio's agent.
//
// A test compares the lists with all variables of an Istio release, and writes the reference page from them.
package istioenv

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
)

// A Variable has no effect. A value that asks for what Moonsail does anyway needs no warning.
type Variable struct {
	Name string
	// Holds are such values, separated by "|"; Any: all are.
	Holds string
	// Why it has no effect, and what to use instead.
	Why string
}

// Any value is one that needs no warning, in Variable.Holds.
const Any = "any value"

// HoldsFor reports whether a value asks for what Moonsail does anyway.
func (v Variable) HoldsFor(value string) bool {
	return v.Holds == Any || slices.Contains(strings.Split(v.Holds, "|"), strings.ToLower(value)) && v.Holds != ""
}

// Unread returns the variables that are set to a value without effect, in the order of their names.
func Unread(list []Variable, lookup func(string) (string, bool)) (out []Variable) {
	for _, v := range list {
		if value, ok := lookup(v.Name); ok && value != "" && !v.HoldsFor(value) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Warn logs each variable that is set to a value without effect.
func Warn(list []Variable, lookup func(string) (string, bool), log *slog.Logger, of string) {
	for _, v := range Unread(list, lookup) {
		value, _ := lookup(v.Name)
		WithoutEffect(log, of, v.Name, value, v.Why)
	}
}

// WithoutEffect logs a variable that is set and has no effect.
func WithoutEffect(log *slog.Logger, of, name, value, why string) {
	log.Warn("variable of "+of+" has no effect", "variable", name, "value", value, "why", why)
}
