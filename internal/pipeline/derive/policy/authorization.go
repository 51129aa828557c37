package policy

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Authorize puts the policies about calls to the workload on all chains that accept calls. All chains have the same
// policies; translate leaves out conditions that bytes do not have.
func Authorize(r *index.Reader, listeners ...*ir.Listener) {
	rules, tokens := authorization(r), tokens(r)
	if rules == nil && tokens == nil {
		return
	}
	for _, l := range listeners {
		l.EachChain(func(c *ir.FilterChain) { protect(c, rules, tokens) })
	}
}

func protect(c *ir.FilterChain, rules *ir.Authorization, tokens *ir.JWT) {
	if c.Closes {
		return
	}
	if c.HTTP != nil {
		c.HTTP.Authorization, c.HTTP.JWT = rules, tokens
	}
	if c.TCP != nil {
		c.TCP.Authorization = rules
	}
}

// authorization is nil if no policy selects the workload.
func authorization(r *index.Reader) *ir.Authorization {
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
		if len(custom) > 1 && !r.Mesh().SeveralAuthorizers {
			out.Custom = append(out.Custom, ir.ExternalAuthorization{Name: name, Policies: custom[name], Conflicts: true})
			continue
		}
		out.Custom = append(out.Custom, externalAuthorization(r, name, custom[name]))
	}
	return out
}

// externalAuthorization has no provider if the mesh has none of that name, or if its service or port does not exist.
func externalAuthorization(r *index.Reader, name string, policies []*model.AuthorizationPolicy) ir.ExternalAuthorization {
	out := ir.ExternalAuthorization{Name: name, Policies: policies}
	if p := authorizerOf(r, name); p != nil {
		out.Provider, out.Cluster = p, ir.OutboundCluster(p.Port, "", p.Host)
	}
	return out
}

// authorizerOf finds a provider whose service and port exist.
func authorizerOf(r *index.Reader, name string) *model.ExternalAuthorizer {
	p := r.Mesh().Authorizers[name]
	if p == nil {
		return nil
	}
	svc := r.Service(p.Host)
	if svc == nil || p.Namespace != "" && svc.Namespace != p.Namespace || svc.Port(p.Port) == nil {
		return nil
	}
	return p
}

// tokens is nil if no RequestAuthentication has rules for the workload.
func tokens(r *index.Reader) *ir.JWT {
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
