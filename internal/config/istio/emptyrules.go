package istio

import (
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
)

// EmptyRules reports rules of an AuthorizationPolicy whose from, to and when are written and empty. The typed object does
// not have them, as if the rule were {}, which allows or denies every call.
func EmptyRules(r *problem.Report, object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	rules, _ := spec["rules"].([]any)
	for i, rule := range rules {
		fields, _ := rule.(map[string]any)
		written, filled := "", false
		for _, name := range []string{"from", "to", "when"} {
			value, found := fields[name]
			list, _ := value.([]any)
			if filled = filled || len(list) > 0; found && written == "" {
				written = name
			}
		}
		if written != "" && !filled {
			r.Warnf(code.RuleForEveryCall, problem.Path("spec.rules").Index(i).Field(written), "is empty, so the rule is for every call; fill it in, or write {} for a rule that is meant so")
		}
	}
}
