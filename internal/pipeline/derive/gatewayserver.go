package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// resolveServer is a server of a Gateway as it stands: with the namespaces that it selects, and of Secrets of
// other namespaces those that it may refer to. nil: none of its Secrets is left.
func (s *proxyGroup) resolveServer(r *reader, p *gatewayPlan, g *model.Gateway, server *model.GatewayServer) *model.GatewayServer {
	if server.Namespaces != nil {
		r.facts.add(namespacesFact())
		server = server.Admit(r.index.discovery.matching(server.Namespaces))
	}
	t := server.TLS
	if !t.EndsTLS() || !slices.ContainsFunc(t.CredentialNames, func(name string) bool { _, needs := g.NeedsGrant(name); return needs }) {
		return server
	}
	granted := *server
	if granted.TLS = grantedTLS(r, p, g, t); len(granted.TLS.CredentialNames) == 0 {
		return nil
	}
	return &granted
}

// grantedTLS leaves out the Secrets that the Gateway may not refer to, and notes in the plan which others it may.
// The CAs of clients stay those of the same Secret: where that is not granted, nobody gets in.
func grantedTLS(r *reader, p *gatewayPlan, g *model.Gateway, t *model.ServerTLS) *model.ServerTLS {
	out := *t
	out.CACredentialName, out.CredentialNames = t.CACredential(), nil
	for _, name := range t.CredentialNames {
		k, needs := g.NeedsGrant(name)
		if needs && !r.granted(g.GrantFrom(), k) {
			continue
		}
		if needs {
			p.granted[model.CredentialURL(name)] = true
		}
		out.CredentialNames = append(out.CredentialNames, name)
	}
	return &out
}

// granted tells whether a ReferenceGrant lets objects refer to one of another namespace.
func (r *reader) granted(from model.GrantFrom, to model.Key) bool {
	list := appendPolicies[*model.ReferenceGrant](nil, r, model.KindReferenceGrant, to.Namespace, nil)
	i := slices.IndexFunc(list, func(g *model.ReferenceGrant) bool {
		return g.Allows(from, model.GrantTo{Kind: string(to.Kind), Name: to.Name})
	})
	if i >= 0 {
		r.use(list[i])
	}
	return i >= 0
}

// markGranted marks the Secrets that servers may or may not have otherwise than before.
func (s *proxyGroup) markGranted(was, now *gatewayPlan) {
	for name := range both(was.granted, now.granted) {
		if was.granted[name] == now.granted[name] {
			continue
		}
		for _, name := range []string{name, name + model.SuffixCA} {
			if s.secretRefs[name].total() > 0 {
				s.mark(secretUnit(name))
			}
		}
	}
}

// grantedSecret tells whether SDS may give the scope's routers a Secret of another namespace.
func (s *proxyGroup) grantedSecret(name string) bool {
	return s.router != nil && s.router.plan.granted[name]
}
