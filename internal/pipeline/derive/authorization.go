package derive

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// inboundBlackHole is the chain that lets nothing in.
const inboundBlackHole = "virtualInbound-blackhole"

// authorize puts what decides about calls to the workload on all chains that let something
// in. The policies are the same for all of them; translate leaves out what bytes do not have.
func (s *proxyGroup) authorize(r *index.Reader, out *Delta) {
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
func (s *proxyGroup) authorization(r *index.Reader) *ir.Authorization {
	out := &ir.Authorization{TrustDomains: r.Mesh().TrustDomains()}
	custom := map[string][]*model.AuthorizationPolicy{}
	found := false
	for _, p := range index.Policies[*model.AuthorizationPolicy](r, model.KindAuthorizationPolicy) {
		found = true
		r.Use(p)
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
		out.Custom = append(out.Custom, externalAuthorization(r, name, custom[name]))
	}
	return out
}

// externalAuthorization has no provider where the mesh has none of that name, or where its
// service or the port of it is not there.
func externalAuthorization(r *index.Reader, name string, policies []*model.AuthorizationPolicy) ir.ExternalAuthorization {
	out := ir.ExternalAuthorization{Name: name, Policies: policies}
	p := r.Mesh().Authorizers[name]
	if p == nil {
		return out
	}
	svc := r.Service(p.Host)
	if svc == nil || p.Namespace != "" && svc.Namespace != p.Namespace || svc.Port(p.Port) == nil {
		return out
	}
	out.Provider, out.Cluster = p, ir.OutboundCluster(p.Port, "", p.Host)
	return out
}

// tokens is nil where nothing is said about tokens of requests to the workload.
func (s *proxyGroup) tokens(r *index.Reader) *ir.JWT {
	out := &ir.JWT{}
	for _, a := range index.Policies[*model.RequestAuthentication](r, model.KindRequestAuthentication) {
		for _, rule := range a.Rules {
			r.Use(a)
			out.Rules = append(out.Rules, ir.JWTRule{JWTRule: rule, Keys: r.JWTKeys(&rule)})
		}
	}
	if len(out.Rules) == 0 {
		return nil
	}
	return out
}
