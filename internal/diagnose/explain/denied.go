package explain

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// maxRules bounds the rules in the reasons of a verdict.
const maxRules = 4

// whyDenied explains the decision of policies against a call: what the call is, and what their rules demand.
func (x *Explainer) whyDenied(snap *store.Snapshot, d *simulate.Decision, p *Passage) []string {
	out := []string{"the call is " + callText(p)}
	if d.Policy != "" {
		policy := x.policyOf(snap, d.Policy)
		if policy == nil || d.Rule == nil || *d.Rule >= len(policy.Rules) {
			return nil
		}
		return append(out, fmt.Sprintf("%s matches %s", x.ruleText(policy, *d.Rule), ruleWords(&policy.Rules[*d.Rule])))
	}
	if len(d.Among) == 0 {
		return nil
	}
	left := 0
	for _, name := range d.Among {
		p := x.policyOf(snap, name)
		if p == nil {
			continue
		}
		if len(p.Rules) == 0 {
			out = append(out, fmt.Sprintf("%s has no rules, so it allows nothing", x.policyText(p)))
		}
		for i := range p.Rules {
			if len(out) > maxRules {
				left++
				continue
			}
			out = append(out, fmt.Sprintf("%s allows %s", x.ruleText(p, i), ruleWords(&p.Rules[i])))
		}
	}
	if left > 0 {
		out = append(out, fmt.Sprintf("and %d more rules allow other calls", left))
	}
	return out
}

// ruleText returns "AuthorizationPolicy shop/readers rules[0], policies.yaml:12".
func (x *Explainer) ruleText(p *model.AuthorizationPolicy, rule int) string {
	field := fieldOfRule(rule)
	return objectText(p.Key) + " " + short(field) + inFile(x.placeOf(&p.Meta, field))
}

func (x *Explainer) policyText(p *model.AuthorizationPolicy) string {
	return objectText(p.Key) + inFile(p.Origin)
}

// inFile returns ", file:line" for a place in a file, and nothing for an API server.
func inFile(place string) string {
	if !strings.Contains(place, ":") {
		return ""
	}
	return ", " + place
}

// policyOf returns the policy with a "namespace/name"; nil: there is none.
func (x *Explainer) policyOf(snap *store.Snapshot, name string) *model.AuthorizationPolicy {
	ns, name, _ := strings.Cut(name, "/")
	p, _ := snap.Get(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: ns, Name: name}).(*model.AuthorizationPolicy)
	return p
}

// callText describes a call as policies see it: "GET /x from principal cluster.local/ns/shop/sa/web".
func callText(p *Passage) string {
	what := "a connection"
	if p.Result.RouteConfig != "" {
		what = strings.TrimSpace(p.call.Method + " " + p.call.Path)
	}
	if p.Principal == "" {
		return what + " without a principal: it is not in mutual TLS"
	}
	return what + " from principal " + strings.TrimPrefix(p.Principal, "spiffe://")
}
