package istio

import (
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
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
			c.Errorf(at.Field("rules").Index(i), "is empty; write {} for a rule that matches everything, or remove it")
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
		c.Errorf(at, "%q is neither \"true\" nor \"false\"", text)
	case dry && (action == model.AuthorizeCustom || action == model.AuthorizeAudit):
		c.Warnf(at, "a policy of action %s cannot be tried: it has no effect until the annotation is removed", action)
	}
	return dry
}

// checkAction checks what an action needs, and what it cannot have.
func (c policyConv) checkAction(at problem.Path, spec *security.AuthorizationPolicy) {
	custom := spec.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case custom && spec.GetProvider().GetName() == "":
		c.Errorf(at.Field("provider").Field("name"), "is missing; name one of the mesh's extensionProviders")
	case !custom && spec.GetProvider() != nil:
		c.Errorf(at.Field("provider"), "is only for action CUSTOM, not for %s; remove it", spec.Action)
	}
	if len(spec.Rules) == 0 && (custom || spec.Action == security.AuthorizationPolicy_DENY) {
		c.Errorf(at.Field("rules"), "is missing, so the policy never does anything; write an empty rule, \"- {}\", for every request")
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
		c.Errorf(at.Field("serviceAccounts"), "cannot be combined with namespaces or principals; use two sources")
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

// comparisons reads pairs of fields, of which there must be one.
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
		c.Errorf(at, "is empty; say what it must be like, or remove it")
	}
	return out
}

func (c policyConv) checkMatch(at problem.Path, m model.AuthorizationMatch, action model.AuthorizationAction) {
	for _, cond := range m {
		c.checkAllowed(at, cond.Attribute, action)
	}
}

// checkAllowed reports what an external authorizer cannot be asked by: it is asked before
// tokens are looked at, and Istio's identities are left to it.
func (c policyConv) checkAllowed(at problem.Path, a model.Attribute, action model.AuthorizationAction) {
	if action == model.AuthorizeCustom && (a.FromPeer() || a.FromToken()) {
		c.Errorf(at, "%s cannot be used with action CUSTOM; leave it to the provider, or use DENY", a)
	}
}
