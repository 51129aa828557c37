package salvage

import (
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// salvageScope leaves out fields that do not exist, and targets that cannot be. Of a selector it keeps the labels
// that can be read. wide: the object then counts for more workloads than was meant, for all of its namespace
// if no label or target is left. So do Kubernetes' API servers have it that drop a misspelt selector.
func salvageScope(spec map[string]any, errors [][]problem.Step) (wide bool) {
	if spec["selector"] != nil && (spec["targetRef"] != nil || spec["targetRefs"] != nil) {
		delete(spec, "selector") // beside targets it does not count; what else is wrong is seen next
		return false
	}
	for _, at := range errors {
		switch at[0].Name {
		case "selector", "targetRef":
			cut(spec, at)
			wide = true
		case "targetRefs":
			cut(spec, at)
			wide = wide || len(at) == 1 || isCut(sweep(spec["targetRefs"], ""))
		case "action", "provider", "rules", "mtls", "portLevelMtls", "jwtRules":
		default:
			wide = wide || spelling.Nearest(at[0].Name, []string{"selector", "matchLabels", "targetRef", "targetRefs"}) != ""
			cut(spec, at[:1])
		}
	}
	return wide
}

// onlyCloses makes an object safe that now selects more workloads than its author meant: at those it must let
// nothing pass that was refused before. An ALLOW policy then allows nothing, since its rules would add to those
// of other policies. It reports false if that cannot be done: a mode other than STRICT may replace STRICT, and
// tokens of an issuer may be what another policy requires. Leaving out a RequestAuthentication opens nothing,
// because then no request has a valid token.
func onlyCloses(kind model.Kind, spec map[string]any) bool {
	switch kind {
	case model.KindAuthorizationPolicy:
		if actionOf(spec) == model.AuthorizeAllow {
			delete(spec, "rules")
		}
		return true
	case model.KindPeerAuthentication:
		mtls, _ := spec["mtls"].(map[string]any)
		delete(spec, "portLevelMtls")
		return mtls["mode"] == string(model.MTLSStrict)
	}
	return false
}

// salvageAuthorization keeps only the valid rules of ALLOW, as Istio does; if none is left, nothing is allowed. Rules of other
// actions lose their invalid parts and so match more, as in Istio. A policy with an unreadable action allows nothing.
func salvageAuthorization(spec map[string]any, errors [][]problem.Step) {
	for _, at := range errors {
		switch at[0].Name {
		case "action":
			spec["action"] = "ALLOW"
			delete(spec, "rules")
			delete(spec, "provider")
			return
		case "provider":
			salvageProvider(spec)
		}
	}
	rules, _ := spec["rules"].([]any)
	for i, ways := range byRule(spec, "rules", errors) {
		if i < len(rules) {
			rules[i] = salvageRule(actionOf(spec), rules[i], ways)
		}
	}
}

func actionOf(spec map[string]any) model.AuthorizationAction {
	switch a := spec["action"].(type) {
	case string:
		return model.AuthorizationAction(a)
	case float64: // JSON of enums may have numbers
		if name, ok := security.AuthorizationPolicy_Action_name[int32(a)]; ok {
			return model.AuthorizationAction(name)
		}
	}
	return model.AuthorizeAllow
}

// salvageProvider sets a provider that does not exist for a CUSTOM policy without a valid one, so its calls are refused.
func salvageProvider(spec map[string]any) {
	if actionOf(spec) == model.AuthorizeCustom {
		spec["provider"] = map[string]any{"name": "(none)"}
		return
	}
	delete(spec, "provider")
}

// salvageRule returns what remains of a rule. A DENY rule of which nothing remains refuses every call, as in Istio.
// The exception is a condition with an invalid key: Istio leaves out such a rule, and a misspelt key alone is not a
// reason to refuse every call.
func salvageRule(action model.AuthorizationAction, rule any, ways [][]problem.Step) any {
	keys := true
	for _, way := range ways {
		if action == model.AuthorizeAllow || len(way) == 0 {
			return cutOut{}
		}
		if way[0].Name == "when" && len(way) > 1 && !isValue(way) {
			way, keys = way[:2], false // without its key a condition is none
		}
		rule = cut(rule, way)
	}
	if rule = sweep(rule, ""); isCut(rule) && (keys || action != model.AuthorizeDeny) {
		return map[string]any{}
	}
	return rule
}

// isValue reports whether a way leads to one of the values that something is compared with.
func isValue(way []problem.Step) bool {
	n := len(way)
	return n > 2 && way[n-1].Index >= 0 && !slices.Contains([]string{"from", "to", "when"}, way[n-2].Name)
}

// salvagePeerAuthentication leaves out ports that are none. A mode that cannot be read is STRICT.
func salvagePeerAuthentication(spec map[string]any, errors [][]problem.Step) {
	strict := map[string]any{"mode": string(model.MTLSStrict)}
	ports, _ := spec["portLevelMtls"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	labels, _ := selector["matchLabels"].(map[string]any)
	for _, at := range errors {
		switch {
		case at[0].Name == "mtls":
			spec["mtls"] = strict
		case at[0].Name == "portLevelMtls" && (ports == nil || len(labels) == 0):
			cut(spec, at[:1]) // without a selector ports are of no workload
		case at[0].Name == "portLevelMtls" && len(at) > 1:
			ports[at[1].Name] = strict
		}
	}
	for port := range ports {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			delete(ports, port)
		}
	}
}

// besideTokens are fields of a rule that have no part in whether a token is valid.
var besideTokens = []string{
	"timeout", "fromHeaders", "fromParams", "fromCookies", "outputPayloadToHeader", "outputClaimToHeaders", "spaceDelimitedClaims",
}

// salvageRequestAuthentication leaves out fields with errors. If such a field decides which tokens are valid, the
// rule accepts none, as Istio's does without keys: without the field it would accept tokens of other audiences, or
// check none.
func salvageRequestAuthentication(spec map[string]any, errors [][]problem.Step) {
	rules, _ := spec["jwtRules"].([]any)
	for i, ways := range byRule(spec, "jwtRules", errors) {
		rule, ok := element(rules, i).(map[string]any)
		for _, way := range ways {
			if !ok || len(way) == 0 {
				cut(spec, []problem.Step{{Name: "jwtRules", Index: -1}, {Index: i}})
				continue
			}
			if _, there := rule[way[0].Name]; there {
				cut(rule, way[:1])
			}
			if !slices.Contains(besideTokens, way[0].Name) {
				delete(rule, "jwksUri")
				rule["jwks"] = model.NoKeys
			}
		}
	}
}

// salvageBackendTLS requires a host name that no certificate has, if the validation cannot be read.
func salvageBackendTLS(spec map[string]any, _ [][]problem.Step) {
	if v := spec["validation"]; v == nil || isCut(v) {
		spec["validation"] = map[string]any{"hostname": "invalid"}
	}
}
