package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
)

// resolveServer is a server of a Gateway as it stands: with the namespaces that it selects, and of Secrets of
// other namespaces those that it may refer to. nil: none of its Secrets is left.
func (s *proxyGroup) resolveServer(r *index.Reader, p *gatewayPlan, g *model.Gateway, server *model.GatewayServer) *model.GatewayServer {
	if server.Namespaces != nil {
		server = server.Admit(r.Namespaces(server.Namespaces))
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
func grantedTLS(r *index.Reader, p *gatewayPlan, g *model.Gateway, t *model.ServerTLS) *model.ServerTLS {
	out := *t
	out.CACredentialName, out.CredentialNames = t.CACredential(), nil
	for _, name := range t.CredentialNames {
		k, needs := g.NeedsGrant(name)
		if needs && !r.Granted(g.GrantFrom(), k) {
			continue
		}
		if needs {
			p.granted[model.CredentialURL(name)] = true
		}
		out.CredentialNames = append(out.CredentialNames, name)
	}
	return &out
}

// markGranted marks the Secrets that servers may or may not have otherwise than before.
func (s *proxyGroup) markGranted(was, now *gatewayPlan) {
	for name := range both(was.granted, now.granted) {
		if was.granted[name] == now.granted[name] {
			continue
		}
		for _, name := range []string{name, name + model.SuffixCA} {
			if s.secretRefs[name].Total() > 0 {
				s.mark(secretUnit(name))
			}
		}
	}
}

// grantedSecret tells whether SDS may give the scope's routers a Secret of another namespace.
func (s *proxyGroup) grantedSecret(name string) bool {
	return s.router != nil && s.router.plan.granted[name]
}
