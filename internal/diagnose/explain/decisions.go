package explain

import (
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

// decisions adds the authorization policies that decided a call, and those that could have allowed it.
func (s *sourceList) decisions(list []simulate.Decision) {
	for i := range list {
		d := &list[i]
		if d.Policy != "" {
			s.rule(d)
		}
		for _, p := range d.Among {
			s.policy(p, "no rule matches", "")
		}
	}
}

// verb describes what a decision does to a call.
func verb(d *simulate.Decision) string {
	out := map[bool]string{true: "refuses", false: "allows"}[d.Refuses]
	switch {
	case d.Action == "AUDIT":
		out = "marks for audit"
	case d.Asks != "" && !d.Refuses:
		out = "asks the external authorizer"
	}
	if d.DryRun {
		return "in a dry run, " + out
	}
	return out
}

// rule adds the policy of a decision, and its rule.
func (s *sourceList) rule(d *simulate.Decision) {
	if d.Rule == nil {
		s.policy(d.Policy, verb(d), "")
		return
	}
	field := fieldOfRule(*d.Rule)
	s.policy(d.Policy, verb(d)+" by "+short(field), field)
}

// policy adds a policy by its "namespace/name".
func (s *sourceList) policy(name, decides, field string) {
	if ns, name, ok := strings.Cut(name, "/"); ok {
		s.add(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: ns, Name: name}, decides, field)
	}
}
