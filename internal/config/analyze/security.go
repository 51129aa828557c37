package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// security is what policies about calls are checked against.
type security struct {
	root       string            // the namespace whose policies are for all
	mesh       *model.MeshConfig // nil: not known
	tokens     []*model.RequestAuthentication
	policies   []*model.AuthorizationPolicy
	custom     []*model.AuthorizationPolicy // of action CUSTOM
	keySets    map[string]*model.KeySet
	namespaces map[string]bool // that something is in
	listed     bool            // namespaces are objects, so that all are known
}

func (s *security) add(o model.Object) {
	if s.keySets == nil {
		s.keySets, s.namespaces = map[string]*model.KeySet{}, map[string]bool{}
	}
	s.namespaces[o.Metadata().Namespace] = true
	switch o := o.(type) {
	case *model.MeshConfig:
		s.mesh, s.root = o, o.Namespace
	case *model.RequestAuthentication:
		s.tokens = append(s.tokens, o)
	case *model.AuthorizationPolicy:
		s.policies = append(s.policies, o)
		if o.Action == model.AuthorizeCustom {
			s.custom = append(s.custom, o)
		}
	case *model.KeySet:
		s.keySets[o.Name] = o
	case *model.Namespace:
		s.namespaces[o.Name], s.listed = true, true
	}
}

// noMesh is the message that the mesh's providers are unknown.
func (c securityChecks) noMesh() string {
	return fmt.Sprintf("the mesh's configuration (ConfigMap istio of namespace %s) is not among the objects", c.security.root)
}

func (c securityChecks) authorizationPolicy(p *model.AuthorizationPolicy) {
	c.policySelector(p)
	if p.Action == model.AuthorizeCustom {
		c.provider(p)
		c.severalProviders(p)
	}
	for i := range p.Rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		c.bytes(p, field, &p.Rules[i])
		c.eachCondition(&p.Rules[i], func(cond *model.AuthorizationCondition) {
			c.condition(p, field, cond)
		})
	}
}

func (c securityChecks) requestAuthentication(a *model.RequestAuthentication) {
	c.policySelector(a)
	c.required(a)
	for i := range a.Rules {
		k := c.security.keySets[a.Rules[i].KeySource()]
		if k == nil {
			continue
		}
		field := fmt.Sprintf("spec.jwtRules[%d]", i)
		if k.LeftOut != "" {
			c.warnf(code.InvalidFormat, a, field, "keys of the issuer cannot be read, so tokens signed with them are refused: %s; correct them at the issuer", k.LeftOut)
		}
		if k.Problem == "" {
			continue
		}
		consequence := "every token of this rule is refused"
		if k.Keys != "" {
			consequence = "the last ones are still used"
		}
		c.errorf(code.KeysUnavailable, a, field, "the keys cannot be fetched, so %s: %s", consequence, k.Problem)
	}
}

// required reports tokens that no policy asks for.
func (c securityChecks) required(a *model.RequestAuthentication) {
	if len(a.Rules) == 0 || slices.ContainsFunc(c.security.policies, func(p *model.AuthorizationPolicy) bool {
		return (p.Namespace == a.Namespace || p.Namespace == c.security.root || a.Namespace == c.security.root) && c.readsTokens(p)
	}) {
		return
	}
	c.infof(code.TokensNotRequired, a, "spec.jwtRules", "requests without a token are allowed: no AuthorizationPolicy of namespace %s compares tokens; write one with requestPrincipals to require them", a.Namespace)
}

// readsTokens reports whether a policy compares what tokens have.
func (c securityChecks) readsTokens(p *model.AuthorizationPolicy) (reads bool) {
	for i := range p.Rules {
		c.eachCondition(&p.Rules[i], func(cond *model.AuthorizationCondition) { reads = reads || cond.Attribute.FromToken() })
	}
	return reads
}

// policySelector reports one that selects nothing; one of the root namespace is for all.
func (c securityChecks) policySelector(o model.Selecting) {
	if model.IsTargeted(o) {
		c.policyTargets(o)
		return
	}
	ns, selector := o.Metadata().Namespace, o.SelectorLabels()
	if len(selector) == 0 || ns == c.security.root {
		return
	}
	if ruleChecks(c).selectsAny(ns, selector) {
		c.selectedElsewhere(o, ns, selector)
		return
	}
	c.warnf(code.SelectorMatchesNothing, o, "spec.selector", "no workload of namespace %s has %s, so the policy has no effect; correct the labels", ns, labelText(selector))
}

// selectedElsewhere reports a selector whose workloads are of another namespace, if those of the object's are not known.
func (c securityChecks) selectedElsewhere(o model.Object, ns string, selector map[string]string) {
	if c.workloadsKnown(ns) {
		return
	}
	for _, other := range slices.Sorted(maps.Keys(c.workloads)) {
		if slices.ContainsFunc(c.workloads[other], func(w *model.Workload) bool { return model.SelectorMatches(selector, w.Labels) }) {
			c.infof(code.SelectorMatchesNothing, o, "spec.selector", "namespace %s has workloads with %s, but the object is for namespace %s only; check metadata.namespace", other, labelText(selector), ns)
			return
		}
	}
}

func (c securityChecks) eachCondition(r *model.AuthorizationRule, visit func(*model.AuthorizationCondition)) {
	for _, m := range slices.Concat([]model.AuthorizationMatch{r.When}, r.From, r.To) {
		for i := range m {
			visit(&m[i])
		}
	}
}

// condition reports what cannot hold.
func (c securityChecks) condition(p *model.AuthorizationPolicy, field string, cond *model.AuthorizationCondition) {
	switch {
	case !cond.Attribute.FromToken() || len(cond.Values) == 0 || c.checksTokens(p):
	case c.onlyFiles && len(c.security.tokens) == 0: // those of the root namespace are often in other files
		c.infof(code.TokensNotChecked, p, field, "compares %s, but no RequestAuthentication is among the objects, so the rule may never match; write one, or pass the files that define it", cond.Attribute)
	default:
		c.warnf(code.TokensNotChecked, p, field, "compares %s, but no RequestAuthentication checks tokens there, so the rule never matches; write one", cond.Attribute)
	}
	if cond.Attribute != model.AttributeNamespace || !c.security.listed && !c.onlyFiles {
		return
	}
	for _, ns := range cond.Values {
		if !strings.Contains(ns, "*") && c.noNamespace(ns) {
			c.warnf(code.NamespaceNotFound, p, field, "namespace %s: not found, so no call comes from it: %s", ns, c.namespaceHint(ns))
		}
	}
}

// checksTokens reports whether tokens are checked at a workload that the policy is about, as
// far as is known.
func (c securityChecks) checksTokens(p *model.AuthorizationPolicy) bool {
	root := c.security.root
	return slices.ContainsFunc(c.security.tokens, func(a *model.RequestAuthentication) bool {
		near := a.Namespace == p.Namespace || a.Namespace == root || p.Namespace == root
		return near && len(a.Rules) > 0 && meet(a, p)
	})
}

// meet reports whether a workload can be selected by both.
func meet(a *model.RequestAuthentication, p *model.AuthorizationPolicy) bool {
	for _, one := range model.Selectors(a) {
		if slices.ContainsFunc(model.Selectors(p), func(other map[string]string) bool { return !contradict(one, other) }) {
			return true
		}
	}
	return false
}

// contradict reports whether no workload can have both sets of labels.
func contradict(a, b map[string]string) bool {
	for k, v := range a {
		if other, ok := b[k]; ok && other != v {
			return true
		}
	}
	return false
}

// provider reports an external authorizer that cannot be asked.
func (c securityChecks) provider(p *model.AuthorizationPolicy) {
	const refused = "so what the policy matches is refused"
	if c.security.mesh == nil { // it may be elsewhere
		c.infof(code.ProviderNotFound, p, "spec.provider.name", "%s, %s unless it has an external authorizer %q in extensionProviders", c.noMesh(), refused, p.Provider)
		return
	}
	a := c.security.mesh.Authorizers[p.Provider]
	if a == nil {
		c.errorf(code.ProviderNotFound, p, "spec.provider.name", "the mesh has no external authorizer %q, %s; add it to extensionProviders", p.Provider, refused)
		return
	}
	found, hidden := c.find(a.Host, p.Namespace)
	found = slices.DeleteFunc(slices.Clone(found), func(s *model.Service) bool { return a.Namespace != "" && s.Namespace != a.Namespace })
	switch {
	case len(found) == 0 && !hidden && c.serviceElsewhere(a.Host):
		c.hostElsewhere(p.Key, "spec.provider.name", a.Host)
	case len(found) == 0:
		c.errorf(code.ProviderNotFound, p, "spec.provider.name", "the provider's service cannot be called, %s: %s", refused, destinationChecks(c).noHost(a.Host, p.Namespace, hidden))
	case found[0].Port(a.Port) == nil:
		c.errorf(code.ProviderNotFound, p, "spec.provider.name", "the provider's service %s has no port %d, %s; it has %s", a.Host, a.Port, refused, ports(found[0]))
	}
}

// severalProviders reports another policy for the same workload that names another external authorizer.
func (c securityChecks) severalProviders(p *model.AuthorizationPolicy) {
	for _, other := range c.security.custom {
		if other.Provider == p.Provider {
			continue
		}
		if w := c.selectedByBoth(p, other); w != "" {
			c.warnf(code.ConflictingProviders, p, "spec.provider.name", "%s also selects %s and names %q, so what either policy matches is refused, unless "+
				"PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS is true for the control plane; use one provider", other.Key, w, other.Provider)
			return
		}
	}
}

// selectedByBoth returns a workload that two policies select; empty: none is known.
func (c securityChecks) selectedByBoth(p, other *model.AuthorizationPolicy) string {
	root := c.security.root
	for _, ns := range slices.Sorted(maps.Keys(c.workloads)) {
		if !slices.Contains([]string{ns, root}, p.Namespace) || !slices.Contains([]string{ns, root}, other.Namespace) {
			continue
		}
		for _, w := range c.workloads[ns] {
			if model.IsFor(p, ns, w.Labels, root) && model.IsFor(other, ns, w.Labels, root) {
				return w.Key.String()
			}
		}
	}
	return ""
}

// bytes reports rules that need requests where workloads have ports for bytes.
func (c securityChecks) bytes(p *model.AuthorizationPolicy, field string, r *model.AuthorizationRule) {
	needs := false
	only := map[string]bool{} // ports that the rule is about; none: all
	c.eachCondition(r, func(cond *model.AuthorizationCondition) {
		needs = needs || cond.Attribute.HTTPOnly()
		if cond.Attribute == model.AttributeDestinationPort {
			for _, v := range cond.Values {
				only[v] = true
			}
		}
	})
	if !needs || p.DryRun {
		return
	}
	where := c.bytePorts(p, only)
	if len(where) == 0 {
		return
	}
	list := strings.Join(where, ", ")
	if p.Action == model.AuthorizeAllow {
		c.infof(code.HTTPConditionOnTCP, p, field, "compares what only HTTP requests have, so it allows no connections to %s; use a rule of ports for them", list)
		return
	}
	c.warnf(code.HTTPConditionOnTCP, p, field, "compares what only HTTP requests have; that part is left out at %s, so that it holds for more connections there; name the ports that the rule is for", list)
}

// bytePorts are the ports of services, of workloads that the policy selects, that are not
// HTTP: at most a few. The ports of a gateway have the protocols of its servers.
func (c securityChecks) bytePorts(p *model.AuthorizationPolicy, only map[string]bool) []string {
	const most = 3
	var out []string
	for _, s := range c.servicesFor(p) {
		list := portsOfBytes(s, only)
		if len(list) == 0 || !c.selects(p, s) || c.isGatewayService(s) {
			continue
		}
		for _, port := range list {
			out = append(out, fmt.Sprintf("%s:%d", s.Hostname, port.Number))
			if len(out) == most {
				return out
			}
		}
	}
	return out
}

// portsOfBytes are the ports of a service that are not HTTP. only are the ports of workloads that count; none: all.
func portsOfBytes(s *model.Service, only map[string]bool) (out []*model.ServicePort) {
	for i := range s.Ports {
		port := &s.Ports[i]
		number := strconv.FormatUint(uint64(workloadPort(port)), 10)
		if !port.Protocol.IsHTTP() && port.Protocol != model.ProtocolAuto && port.Protocol != model.ProtocolUDP && (len(only) == 0 || only[number]) {
			out = append(out, port)
		}
	}
	return out
}

// servicesFor returns the services whose workloads a policy may select: those of its namespace, or all.
func (c securityChecks) servicesFor(p model.Selecting) []*model.Service {
	if ns := p.Metadata().Namespace; ns == c.security.root {
		return c.services
	}
	return c.byPlace[p.Metadata().Namespace]
}

// selects reports whether a workload of a service is selected.
func (c securityChecks) selects(p model.Selecting, s *model.Service) bool {
	if len(s.Selector) == 0 {
		return false
	}
	members, known := c.members(s)
	if !known {
		return model.Selects(p, s.Selector)
	}
	return slices.ContainsFunc(members, func(m member) bool { return model.Selects(p, m.labels) })
}

// policyTargets reports target Gateways that do not exist, unless a router has their name. Decoding the policy
// reports a policy without any target.
func (c securityChecks) policyTargets(o model.Selecting) {
	t, ok := o.(model.Targeting)
	if !ok {
		return
	}
	names, _ := t.TargetGateways()
	ns := o.Metadata().Namespace
	for _, name := range names {
		router := func(w *model.Workload) bool { return w.Labels[model.LabelGatewayName] == name }
		if c.gateways.api[model.Key{Kind: model.KindKubernetesGateway, Namespace: ns, Name: name}] != nil || slices.ContainsFunc(c.workloads[ns], router) {
			continue
		}
		if c.onlyFiles && !c.gatewaysIn(ns) {
			c.elsewhere(o.Metadata().Key, "spec.targetRefs", "Gateway "+name, "other Gateways of namespace "+ns)
			continue
		}
		c.warnf(code.GatewayNotFound, o, "spec.targetRefs", "namespace %s has no Gateway %s of a class that is served here, so nothing is done for it; write it, or correct the name", ns, name)
	}
}

// gatewaysIn reports whether a namespace has Gateways of the Gateway API.
func (c securityChecks) gatewaysIn(ns string) bool {
	for k := range c.gateways.api {
		if k.Namespace == ns && k.Kind == model.KindKubernetesGateway {
			return true
		}
	}
	return false
}
