package model

import "slices"

// Admit is the server with the routes of some namespaces, too.
func (s *GatewayServer) Admit(namespaces []string) *GatewayServer {
	out := *s
	out.Hosts = slices.Clone(s.Hosts)
	for _, ns := range namespaces {
		out.Hosts = append(out.Hosts, HostSelector{Namespace: ns, Host: s.Hosts[0].Host})
	}
	return &out
}

// NeedsGrant is the Secret that a server names by a credential, where it is of another namespace, so that a
// ReferenceGrant there has to let Gateways refer to it; false: it is not. Istio's Gateways cannot have such.
func (g *Gateway) NeedsGrant(credential string) (Key, bool) {
	c, ok := ParseCredential(credential)
	if !ok || g.Kind != KindKubernetesGateway || c.Kind != KindSecret || c.Namespace == "" || c.Namespace == g.Namespace {
		return Key{}, false
	}
	return c.Key(), true
}

// GrantsNeeded are the Secrets of other namespaces that a Gateway's servers name.
func (g *Gateway) GrantsNeeded() []Key {
	var out []Key
	for i := range g.Servers {
		if t := g.Servers[i].TLS; t.EndsTLS() {
			for _, name := range t.CredentialNames {
				if k, ok := g.NeedsGrant(name); ok {
					out = append(out, k)
				}
			}
		}
	}
	return out
}

// GrantFrom is how ReferenceGrants call it.
func (g *Gateway) GrantFrom() GrantFrom {
	return GrantFrom{Kind: "Gateway", Namespace: g.Namespace}
}
