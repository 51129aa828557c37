package istio

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// annotationDryRun makes a policy one that only counts.
const annotationDryRun = "istio.io/dry-run"

var authorizationActions = map[security.AuthorizationPolicy_Action]model.AuthorizationAction{
	security.AuthorizationPolicy_ALLOW:  model.AuthorizeAllow,
	security.AuthorizationPolicy_DENY:   model.AuthorizeDeny,
	security.AuthorizationPolicy_AUDIT:  model.AuthorizeAudit,
	security.AuthorizationPolicy_CUSTOM: model.AuthorizeCustom,
}

// AuthorizationPolicy decodes an AuthorizationPolicy.
func AuthorizationPolicy(in convert.Cluster, o *securityv1.AuthorizationPolicy) (*model.AuthorizationPolicy, problem.List) {
	c := policyConv{convert.Start(in, model.KindAuthorizationPolicy, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	p := &model.AuthorizationPolicy{
		Meta: c.Meta, Action: authorizationActions[spec.Action], Provider: spec.GetProvider().GetName(),
	}
	p.Selector, p.Targets = c.policyScope(spec)
	p.DryRun = c.dryRun(p.Action)
	c.checkAction(at, spec)
	for i, r := range spec.Rules {
		if r == nil {
			c.Errorf(code.EmptyValue, at.Field("rules").Index(i), "is empty; write {} for a rule that matches everything, or remove it")
			continue
		}
		p.Rules = append(p.Rules, c.authorizationRule(at.Field("rules").Index(i), r, p.Action))
	}
	return p, c.Problems
}

func (c policyConv) dryRun(action model.AuthorizationAction) bool {
	text, ok := c.Meta.Annotations[annotationDryRun]
	if !ok {
		return false
	}
	at := problem.Path("metadata").Field("annotations").Key(annotationDryRun)
	dry, err := strconv.ParseBool(text)
	switch {
	case err != nil:
		c.Errorf(code.UnknownValue, at, "%q is neither \"true\" nor \"false\"", text)
	case dry && (action == model.AuthorizeCustom || action == model.AuthorizeAudit):
		c.Warnf(code.NotAllowedHere, at, "a policy of action %s cannot be tried: it has no effect until the annotation is removed", action)
	}
	return dry
}

// checkAction checks what an action needs, and what it cannot have.
func (c policyConv) checkAction(at problem.Path, spec *security.AuthorizationPolicy) {
	custom := spec.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case custom && spec.GetProvider().GetName() == "":
		c.Errorf(code.MissingField, at.Field("provider").Field("name"), "is missing; name one of the mesh's extensionProviders")
	case !custom && spec.GetProvider() != nil:
		c.Errorf(code.NotAllowedHere, at.Field("provider"), "is only for action CUSTOM, not for %s; remove it", spec.Action)
	}
	if len(spec.Rules) == 0 && (custom || spec.Action == security.AuthorizationPolicy_DENY) {
		c.Errorf(code.MissingField, at.Field("rules"), "is missing, so the policy never does anything; write an empty rule, \"- {}\", for every request")
	}
}

func (c policyConv) authorizationRule(at problem.Path, r *security.Rule, action model.AuthorizationAction) model.AuthorizationRule {
	out := model.AuthorizationRule{}
	for i, f := range r.From {
		at := at.Field("from").Index(i).Field("source")
		m := c.callers(at, f.GetSource())
		c.checkMatch(at, m, action)
		out.From = append(out.From, m)
	}
	for i, t := range r.To {
		at := at.Field("to").Index(i).Field("operation")
		m := c.operations(at, t.GetOperation())
		c.checkMatch(at, m, action)
		out.To = append(out.To, m)
	}
	for i, w := range r.When {
		if cond, ok := c.when(at.Field("when").Index(i), w); ok {
			c.checkAllowed(at.Field("when").Index(i).Field("key"), cond.Attribute, action)
			out.When = append(out.When, cond)
		}
	}
	return out
}

// comparison is one pair of fields, such as paths and notPaths.
type comparison struct {
	attribute   model.Attribute
	field       string
	values, not []string
}

// notField is "notPaths" for "paths".
func notField(field string) string { return "not" + strings.ToUpper(field[:1]) + field[1:] }

func (c policyConv) callers(at problem.Path, s *security.Source) model.AuthorizationMatch {
	if len(s.GetServiceAccounts())+len(s.GetNotServiceAccounts()) > 0 &&
		len(s.GetPrincipals())+len(s.GetNotPrincipals())+len(s.GetNamespaces())+len(s.GetNotNamespaces()) > 0 {
		c.Errorf(code.ExclusiveFields, at.Field("serviceAccounts"), "cannot be combined with namespaces or principals; use two sources")
	}
	return c.comparisons(at, []comparison{
		{model.AttributePrincipal, "principals", s.GetPrincipals(), s.GetNotPrincipals()},
		{model.AttributeRequestPrincipal, "requestPrincipals", s.GetRequestPrincipals(), s.GetNotRequestPrincipals()},
		{model.AttributeNamespace, "namespaces", s.GetNamespaces(), s.GetNotNamespaces()},
		{model.AttributeServiceAccount, "serviceAccounts", s.GetServiceAccounts(), s.GetNotServiceAccounts()},
		{model.AttributeTrustDomain, "trustDomains", s.GetTrustDomains(), s.GetNotTrustDomains()},
		{model.AttributeSourceIP, "ipBlocks", s.GetIpBlocks(), s.GetNotIpBlocks()},
		{model.AttributeRemoteIP, "remoteIpBlocks", s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks()},
	})
}

func (c policyConv) operations(at problem.Path, o *security.Operation) model.AuthorizationMatch {
	return c.comparisons(at, []comparison{
		{model.AttributeHost, "hosts", o.GetHosts(), o.GetNotHosts()},
		{model.AttributeDestinationPort, "ports", o.GetPorts(), o.GetNotPorts()},
		{model.AttributeMethod, "methods", o.GetMethods(), o.GetNotMethods()},
		{model.AttributePath, "paths", o.GetPaths(), o.GetNotPaths()},
	})
}

// comparisons reads pairs of fields. At least one must be set.
func (c policyConv) comparisons(at problem.Path, all []comparison) model.AuthorizationMatch {
	var out model.AuthorizationMatch
	for _, f := range all {
		if len(f.values)+len(f.not) == 0 {
			continue
		}
		c.attributeValues(at.Field(f.field), f.attribute, f.values)
		c.attributeValues(at.Field(notField(f.field)), f.attribute, f.not)
		out = append(out, model.AuthorizationCondition{Attribute: f.attribute, Values: f.values, Not: f.not})
	}
	if len(out) == 0 {
		c.Errorf(code.EmptyValue, at, "is empty; add a condition, or remove it")
	}
	return out
}

func (c policyConv) checkMatch(at problem.Path, m model.AuthorizationMatch, action model.AuthorizationAction) {
	for _, cond := range m {
		c.checkAllowed(at, cond.Attribute, action)
	}
}

// checkAllowed reports attributes that cannot select the calls for an external authorizer: it is asked before tokens are
// checked, and decides about identities itself, as in Istio.
func (c policyConv) checkAllowed(at problem.Path, a model.Attribute, action model.AuthorizationAction) {
	if action == model.AuthorizeCustom && (a.FromPeer() || a.FromToken()) {
		c.Errorf(code.NotAllowedHere, at, "%s cannot be used with action CUSTOM; leave it to the provider, or use DENY", a)
	}
}

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
	"destination.namespace": "metadata.namespace selects the workloads of the policy",
	"destination.labels":    "use selector",
	"destination.name":      "use selector",
	"destination.user":      "use selector",
}

// when reads one condition.
func (c policyConv) when(at problem.Path, w *security.Condition) (model.AuthorizationCondition, bool) {
	cond, ok := c.whenKey(at.Field("key"), w.GetKey())
	if !ok {
		return cond, false
	}
	cond.Values, cond.Not = w.GetValues(), w.GetNotValues()
	if len(cond.Values)+len(cond.Not) == 0 {
		c.Errorf(code.EmptyValue, at, "compares %s with nothing; set values or notValues", w.GetKey())
	}
	c.attributeValues(at.Field("values"), cond.Attribute, cond.Values)
	c.attributeValues(at.Field("notValues"), cond.Attribute, cond.Not)
	return cond, true
}

func (c policyConv) whenKey(at problem.Path, key string) (model.AuthorizationCondition, bool) {
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
		c.Errorf(code.Deprecated, at, "%q is not an attribute any more: %s", key, use)
		return model.AuthorizationCondition{}, false
	}
	known := make([]string, 0, len(whenKeys)+len(bracketKeys))
	for _, a := range slices.Concat(whenKeys, bracketKeys) {
		known = append(known, string(a))
	}
	c.Errorf(code.UnknownValue, at, "%q is not an attribute%s", key, spelling.DidYouMean(key, known))
	return model.AuthorizationCondition{}, false
}

// bracketNames reads "[header]", "[claim][within it]" and "name[key]".
func (c policyConv) bracketNames(at problem.Path, key, rest string, a model.Attribute) ([]string, bool) {
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
		c.Errorf(code.InvalidFormat, at, "%q is not of the form %s[NAME]", key, strings.TrimSuffix(key, rest))
		return nil, false
	}
	if parts := strings.Split(inner, "]["); a == model.AttributeClaims && !slices.Contains(parts, "") {
		return append(names, parts...), true
	}
	if a == model.AttributeHeaders && !slices.Contains(pseudoHeaders, inner) {
		c.HeaderName(at, inner)
	}
	return append(names, inner), true
}

// pseudoHeaders are the parts of requests that Envoy stores like headers.
var pseudoHeaders = []string{":authority", ":method", ":path", ":protocol", ":scheme"}

// attributeValues checks what an attribute is compared with.
func (c policyConv) attributeValues(at problem.Path, a model.Attribute, values []string) {
	for i, v := range values {
		if v == "" {
			c.Errorf(code.EmptyValue, at.Index(i), "is empty; write what it is compared with, or \"*\" for any")
			continue
		}
		c.attributeValue(at.Index(i), a, v)
	}
	if a == model.AttributeServiceAccount && len(values) > maxServiceAccounts {
		c.Errorf(code.InvalidText, at, "has %d entries; %d is the limit", len(values), maxServiceAccounts)
	}
}

// Limits, as Istio's.
const (
	maxServiceAccounts = 16
	maxServiceAccount  = 320 // characters
)

func (c policyConv) attributeValue(at problem.Path, a model.Attribute, v string) {
	c.Pattern(at, v)
	switch a {
	case model.AttributeSourceIP, model.AttributeRemoteIP, model.AttributeDestinationIP:
		c.Prefix(at, v)
		return
	case model.AttributeDestinationPort:
		if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 {
			c.Errorf(code.InvalidNumber, at, "%q is not a port; use 1 to 65535", v)
		}
		return
	case model.AttributeServiceAccount:
		c.serviceAccount(at, v)
		return
	case model.AttributeNamespace: // wildcards anywhere
		return
	case model.AttributeTrustDomain:
		if strings.Contains(v, "/") {
			c.Errorf(code.InvalidFormat, at, "%q is not a trust domain: it has no \"/\"; use principals for what is behind it", v)
		} else if strings.Contains(strings.Trim(v, "*"), "*") || strings.Count(v, "*") > 1 {
			c.Errorf(code.InvalidExpression, at, "%q is not a pattern; one * can be at the beginning or at the end", v)
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

func (c policyConv) serviceAccount(at problem.Path, v string) {
	ns, name, both := strings.Cut(v, "/")
	switch {
	case strings.Contains(v, "*"):
		c.Errorf(code.NeverMatches, at, "%q has a wildcard, which service accounts cannot have; use principals", v)
	case len(v) > maxServiceAccount:
		c.Errorf(code.InvalidText, at, "is longer than %d characters", maxServiceAccount)
	case both && (ns == "" || name == "" || strings.Contains(name, "/")):
		c.Errorf(code.InvalidName, at, "%q is not of the form NAME or NAMESPACE/NAME", v)
	}
}

// pattern warns of values that can never be met.
func (c policyConv) pattern(at problem.Path, a model.Attribute, v string) {
	inner := strings.TrimSuffix(v, "*")
	if inner == v {
		inner = strings.TrimPrefix(v, "*")
	}
	if domain, rest, _ := strings.Cut(inner, "/"); a == model.AttributePrincipal && !strings.HasPrefix(v, "*") && strings.Count(v, "/") == 4 {
		inner = strings.TrimSuffix(domain, "*") + "/" + rest // the trust domain may have a wildcard, too
	}
	switch {
	case a == model.AttributePrincipal && strings.HasPrefix(v, "spiffe://"):
		c.Warnf(code.NeverMatches, at, "%q never matches: principals are written without spiffe://", v).Set(strings.TrimPrefix(v, "spiffe://"))
	case a == model.AttributePrincipal && v != "" && !strings.Contains(v, "*") && !strings.Contains(v, "/"):
		c.Warnf(code.NeverMatches, at, "%q never matches: principals have the form TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT; write \"*/sa/%s\", or use serviceAccounts", v, v)
	case a == model.AttributePath && (strings.Contains(v, ".*") || strings.Contains(v, ".+")):
		c.Warnf(code.NeverMatches, at, "%q is not a regular expression: the dot is compared literally; leave it out", v)
	case strings.Contains(inner, "*") && a != model.AttributeHeaders:
		c.Warnf(code.NeverMatches, at, "in %q a * is taken literally: only one at the beginning or at the end is a wildcard", v)
	case a == model.AttributeMethod && strings.ToUpper(v) != v:
		c.Warnf(code.NeverMatches, at, "%q may match nothing: methods are in upper case; write %q", v, strings.ToUpper(v)).Set(strings.ToUpper(v))
	case a == model.AttributePath && !strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "*"):
		c.Warnf(code.NeverMatches, at, "%q never matches: paths begin with \"/\"", v).Set("/" + v)
	case a == model.AttributePath && strings.ContainsAny(v, "?#"):
		c.Warnf(code.NeverMatches, at, "%q never matches: what follows a \"?\" or \"#\" is not part of the path", v)
	}
}

// Operators of path templates: one segment, and any number of them.
const (
	templateOne = "{*}"
	templateAny = "{**}"
)

// maxTemplate is how long a template may be for Envoy, in bytes, where {*} is "*" and {**} is "**". Envoy refuses
// the whole listener for a longer one, with all policies that are in it.
const maxTemplate = 256

// literalSegment is RFC 3986's pchar, as far as Envoy takes it in templates.
var literalSegment = regexp.MustCompile(`^[a-zA-Z0-9-._~%!$&'()+,;:@=]+$`)

// IsPathTemplate reports whether a path is compared as a template.
func IsPathTemplate(p string) bool {
	return strings.Contains(p, templateOne) || strings.Contains(p, templateAny)
}

// pathTemplate checks a template: each segment is an operator or literal, and nothing follows
// {**} but literals.
func (c policyConv) pathTemplate(at problem.Path, p string) {
	if msg := templateError(p); msg != "" {
		c.Errorf(code.InvalidExpression, at, "%q is not a path template: %s", p, msg)
	}
}

func templateError(p string) string {
	if !IsPathTemplate(p) {
		return "braces are only for {*} and {**}"
	}
	if !strings.HasPrefix(p, "/") {
		return "it must begin with \"/\""
	}
	if n := len(p) - strings.Count(p, "{") - strings.Count(p, "}"); n > maxTemplate {
		return fmt.Sprintf("it is longer than %d characters", maxTemplate)
	}
	rest := false
	for s := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/"), "/") {
		switch {
		case (s == templateOne || s == templateAny) && rest:
			return "{**} must be the last operator"
		case s == templateAny:
			rest = true
		case s == templateOne:
		case strings.ContainsAny(s, "{}"):
			return "{*} and {**} stand for whole segments, between two \"/\""
		case s == "":
			return "it has an empty segment"
		case !literalSegment.MatchString(s):
			return "segment \"" + s + "\" has characters that templates cannot have"
		}
	}
	return ""
}
