package istio

import (
	"slices"
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// whenKeys are the keys of conditions without brackets.
var whenKeys = []model.Attribute{
	model.AttributePrincipal, model.AttributeNamespace, model.AttributeServiceAccount, model.AttributeTrustDomain,
	model.AttributeSourceIP, model.AttributeRemoteIP, model.AttributeRequestPrincipal, model.AttributeAudiences,
	model.AttributePresenter, model.AttributeDestinationIP, model.AttributeDestinationPort, model.AttributeSNI,
}

// bracketKeys are those with a name in brackets.
var bracketKeys = []model.Attribute{model.AttributeHeaders, model.AttributeClaims, model.AttributeFilterMetadata}

// replacedKeys are Istio's old ones, with what to use.
var replacedKeys = map[string]string{
	"destination.namespace": "metadata.namespace says which workloads the policy is for",
	"destination.labels":    "use selector",
	"destination.name":      "use selector",
	"destination.user":      "use selector",
}

// when reads one condition.
func (c *conv) when(at path, w *security.Condition) (model.AuthorizationCondition, bool) {
	cond, ok := c.whenKey(at.f("key"), w.GetKey())
	if !ok {
		return cond, false
	}
	cond.Values, cond.Not = w.GetValues(), w.GetNotValues()
	if len(cond.Values)+len(cond.Not) == 0 {
		c.errorf(at, "compares %s with nothing; give values or notValues", w.GetKey())
	}
	c.attributeValues(at.f("values"), cond.Attribute, cond.Values)
	c.attributeValues(at.f("notValues"), cond.Attribute, cond.Not)
	return cond, true
}

func (c *conv) whenKey(at path, key string) (model.AuthorizationCondition, bool) {
	if i := slices.Index(whenKeys, model.Attribute(key)); i >= 0 {
		return model.AuthorizationCondition{Attribute: whenKeys[i]}, true
	}
	for _, a := range bracketKeys {
		if rest, ok := strings.CutPrefix(key, string(a)); ok {
			names, ok := c.bracketNames(at, key, rest, a)
			return model.AuthorizationCondition{Attribute: a, Names: names}, ok
		}
	}
	bare, _, _ := strings.Cut(key, "[")
	if use, ok := replacedKeys[bare]; ok {
		c.errorf(at, "%q is not an attribute any more: %s", key, use)
		return model.AuthorizationCondition{}, false
	}
	known := make([]string, 0, len(whenKeys)+len(bracketKeys))
	for _, a := range slices.Concat(whenKeys, bracketKeys) {
		known = append(known, string(a))
	}
	c.errorf(at, "%q is not an attribute%s", key, spelling.DidYouMean(key, known))
	return model.AuthorizationCondition{}, false
}

// bracketNames reads "[header]", "[claim][within it]" and "name[key]".
func (c *conv) bracketNames(at path, key, rest string, a model.Attribute) ([]string, bool) {
	var names []string
	if a == model.AttributeFilterMetadata {
		filter, tail, _ := strings.Cut(rest, "[")
		names, rest = append(names, "envoy.filters."+filter), "["+tail
		if filter == "" {
			rest = ""
		}
	}
	inner, ok := strings.CutPrefix(rest, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !ok || !closed || inner == "" {
		c.errorf(at, "%q is not of the form %s[NAME]", key, strings.TrimSuffix(key, rest))
		return nil, false
	}
	if parts := strings.Split(inner, "]["); a == model.AttributeClaims && !slices.Contains(parts, "") {
		return append(names, parts...), true
	}
	if a == model.AttributeHeaders {
		c.headerName(at, inner)
	}
	return append(names, inner), true
}

// attributeValues checks what an attribute is compared with.
func (c *conv) attributeValues(at path, a model.Attribute, values []string) {
	for i, v := range values {
		if v == "" {
			c.errorf(at.i(i), "is empty; write what it is compared with, or \"*\" for any")
			continue
		}
		c.attributeValue(at.i(i), a, v)
	}
	if a == model.AttributeServiceAccount && len(values) > maxServiceAccounts {
		c.errorf(at, "has %d entries; %d is the limit", len(values), maxServiceAccounts)
	}
}

// Limits, as Istio's.
const (
	maxServiceAccounts = 16
	maxServiceAccount  = 320 // characters
)

func (c *conv) attributeValue(at path, a model.Attribute, v string) {
	switch a {
	case model.AttributeSourceIP, model.AttributeRemoteIP, model.AttributeDestinationIP:
		c.prefix(at, v)
		return
	case model.AttributeDestinationPort:
		if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 {
			c.errorf(at, "%q is not a port; use 1 to 65535", v)
		}
		return
	case model.AttributeServiceAccount:
		c.serviceAccount(at, v)
		return
	case model.AttributeNamespace: // wildcards anywhere
		return
	case model.AttributeTrustDomain:
		if strings.Contains(v, "/") {
			c.errorf(at, "%q is not a trust domain: it has no \"/\"; use principals for what is behind it", v)
		} else if strings.Contains(strings.Trim(v, "*"), "*") || strings.Count(v, "*") > 1 {
			c.errorf(at, "%q is not a pattern; one * can be at the beginning or at the end", v)
		}
		return
	case model.AttributePath:
		if IsPathTemplate(v) || strings.ContainsAny(v, "{}") {
			c.pathTemplate(at, v)
			return
		}
	}
	c.pattern(at, a, v)
}

func (c *conv) serviceAccount(at path, v string) {
	ns, name, both := strings.Cut(v, "/")
	switch {
	case strings.Contains(v, "*"):
		c.errorf(at, "%q has a wildcard, which service accounts cannot have; use principals", v)
	case len(v) > maxServiceAccount:
		c.errorf(at, "is longer than %d characters", maxServiceAccount)
	case both && (ns == "" || name == "" || strings.Contains(name, "/")):
		c.errorf(at, "%q is not of the form NAME or NAMESPACE/NAME", v)
	}
}

// pattern warns of values that can never be met.
func (c *conv) pattern(at path, a model.Attribute, v string) {
	inner := strings.TrimSuffix(v, "*")
	if inner == v {
		inner = strings.TrimPrefix(v, "*")
	}
	switch {
	case a == model.AttributePrincipal && strings.HasPrefix(v, "spiffe://"):
		c.warnf(at, "%q never matches: principals are written without spiffe://", v)
	case strings.Contains(inner, "*") && a != model.AttributeHeaders:
		c.warnf(at, "in %q a * is taken literally: only one at the beginning or at the end is a wildcard", v)
	case a == model.AttributeMethod && strings.ToUpper(v) != v:
		c.warnf(at, "%q never matches: methods are in upper case", v)
	case a == model.AttributePath && !strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "*"):
		c.warnf(at, "%q never matches: paths begin with \"/\"", v)
	case a == model.AttributePath && strings.ContainsAny(v, "?#"):
		c.warnf(at, "%q never matches: what follows a \"?\" or \"#\" is not part of the path", v)
	}
}
