package explain

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// ruleWords describes when a rule of an AuthorizationPolicy matches: "from principals a or b; to methods GET; when ...".
func ruleWords(r *model.AuthorizationRule) string {
	var parts []string
	for _, p := range []struct {
		word string
		any  []model.AuthorizationMatch
	}{{"from", r.From}, {"to", r.To}} {
		var choices []string
		for _, m := range p.any {
			choices = append(choices, matchWords(m))
		}
		if len(choices) > 0 {
			parts = append(parts, p.word+" "+strings.Join(choices, ", or "))
		}
	}
	if len(r.When) > 0 {
		parts = append(parts, "when "+matchWords(r.When))
	}
	if len(parts) == 0 {
		return "any call"
	}
	return "calls " + strings.Join(parts, "; ")
}

// matchWords describes conditions that must all match.
func matchWords(m model.AuthorizationMatch) string {
	var parts []string
	for i := range m {
		parts = append(parts, conditionWords(&m[i]))
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, " and ")
}

// fieldNames are the fields of rules for attributes.
var fieldNames = map[model.Attribute]string{
	model.AttributePrincipal: "principals", model.AttributeNamespace: "namespaces", model.AttributeServiceAccount: "serviceAccounts",
	model.AttributeSourceIP: "ipBlocks", model.AttributeRemoteIP: "remoteIpBlocks", model.AttributeRequestPrincipal: "requestPrincipals",
	model.AttributeHost: "hosts", model.AttributeMethod: "methods", model.AttributePath: "paths", model.AttributeDestinationPort: "ports",
}

// maxValues bounds the values of a condition in a text.
const maxValues = 5

// conditionWords describes one condition.
func conditionWords(c *model.AuthorizationCondition) string {
	name, known := fieldNames[c.Attribute]
	if !known {
		name = string(c.Attribute)
		for _, n := range c.Names {
			name += "[" + n + "]"
		}
	}
	var parts []string
	if len(c.Values) > 0 {
		parts = append(parts, name+" "+valueWords(c.Values))
	}
	if len(c.Not) > 0 {
		parts = append(parts, name+" other than "+valueWords(c.Not))
	}
	return strings.Join(parts, " and ")
}

func valueWords(values []string) string {
	text := strings.Join(values[:min(len(values), maxValues)], " or ")
	if more := len(values) - maxValues; more > 0 {
		text += fmt.Sprintf(" or %d more", more)
	}
	return text
}

// fieldOfRule is the field of a rule.
func fieldOfRule(index int) string { return fmt.Sprintf("spec.rules[%d]", index) }
