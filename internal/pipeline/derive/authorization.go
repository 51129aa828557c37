package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// inboundBlackHole is the chain that lets nothing in.
const inboundBlackHole = "virtualInbound-blackhole"

// authorize puts what decides about calls to the workload on all chains that let something
// in. The policies are the same for all of them; translate leaves out what bytes do not have.
func (s *proxyGroup) authorize(r *reader, out *Delta) {
	policy, tokens := s.authorization(r), s.tokens(r)
	if policy == nil && tokens == nil {
		return
	}
	for _, l := range out.Listeners {
		for i := range l.Chains {
			if l.Chains[i].Name != inboundBlackHole {
				protect(&l.Chains[i], policy, tokens)
			}
		}
		if l.Default != nil {
			protect(l.Default, policy, tokens)
		}
	}
}

func protect(c *ir.FilterChain, policy *ir.Authorization, tokens *ir.JWT) {
	if c.HTTP != nil {
		c.HTTP.Authorization, c.HTTP.JWT = policy, tokens
	}
	if c.TCP != nil {
		c.TCP.Authorization = policy
	}
}

// authorization is nil where no policy selects the workload.
func (s *proxyGroup) authorization(r *reader) *ir.Authorization {
	out := &ir.Authorization{TrustDomains: r.mesh().TrustDomains()}
	custom := map[string][]*model.AuthorizationPolicy{}
	found := false
	for _, p := range policies[*model.AuthorizationPolicy](r, model.KindAuthorizationPolicy, s.Key.Namespace, s.labels) {
		found = true
		r.use(p)
		switch p.Action {
		case model.AuthorizeCustom:
			custom[p.Provider] = append(custom[p.Provider], p)
		case model.AuthorizeAudit:
			out.Audit = append(out.Audit, p)
		case model.AuthorizeDeny:
			out.Deny = append(out.Deny, p)
		case model.AuthorizeAllow:
			out.Allow = append(out.Allow, p)
		}
	}
	if !found {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(custom)) {
		out.Custom = append(out.Custom, r.externalAuthorization(name, custom[name]))
	}
	return out
}

// externalAuthorization has no provider where the mesh has none of that name, or where its
// service or the port of it is not there.
func (r *reader) externalAuthorization(name string, policies []*model.AuthorizationPolicy) ir.ExternalAuthorization {
	out := ir.ExternalAuthorization{Name: name, Policies: policies}
	p := r.mesh().Authorizers[name]
	if p == nil {
		return out
	}
	svc := r.service(p.Host)
	if svc == nil || p.Namespace != "" && svc.Namespace != p.Namespace || svc.Port(p.Port) == nil {
		return out
	}
	out.Provider, out.Cluster = p, ir.OutboundCluster(p.Port, "", p.Host)
	return out
}

// tokens is nil where nothing is said about tokens of requests to the workload.
func (s *proxyGroup) tokens(r *reader) *ir.JWT {
	out := &ir.JWT{}
	for _, a := range policies[*model.RequestAuthentication](r, model.KindRequestAuthentication, s.Key.Namespace, s.labels) {
		for _, rule := range a.Rules {
			r.use(a)
			out.Rules = append(out.Rules, ir.JWTRule{JWTRule: rule, Keys: r.keys(&rule)})
		}
	}
	if len(out.Rules) == 0 {
		return nil
	}
	return out
}

// keys are those of a rule: "" where they could not be fetched.
func (r *reader) keys(rule *model.JWTRule) string {
	source := rule.KeySource()
	if source == "" {
		return rule.Keys
	}
	r.facts.add(keySetFact(source))
	if k := r.index.keySets[source]; k != nil {
		return k.Keys
	}
	return ""
}

// keySetFact is named like a policy's: no policy has that kind.
func keySetFact(source string) fact {
	return policyFact(policyKey{kind: model.KindKeySet, pair: source})
}

func (x *Index) replaceKeySet(old, now *model.KeySet, touched *touched) {
	if old != nil {
		touched.facts.add(keySetFact(old.Name))
		delete(x.keySets, old.Name)
	}
	if now != nil {
		touched.facts.add(keySetFact(now.Name))
		x.keySets[now.Name] = now
	}
}
