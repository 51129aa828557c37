package model

import "slices"

// KindBackendTLSPolicy is a kind of the Gateway API.
const KindBackendTLSPolicy Kind = "BackendTLSPolicy"

// BackendTLSPolicy has all who call Services speak TLS to them, and says whose certificates they take.
type BackendTLSPolicy struct {
	Meta
	Targets []BackendTarget
	// CAs are ConfigMaps, of which the first that can be used counts: where none can, no connection is made.
	CAs    []Key
	System bool // the CAs of the proxy's system count in place of these
	SNI    string
	// SubjectAltNames are taken in place of SNI; empty: SNI is.
	SubjectAltNames []string
}

// BackendTarget is a Service of the policy's namespace, or one of its ports by name.
type BackendTarget struct {
	Host Host
	Port string // empty: the ports that no other policy names
}

// BackendTLSFor is the policy that counts for a port of a Service: of those that name it the first, else of those
// for the whole Service. list has the oldest first.
func BackendTLSFor(list []*BackendTLSPolicy, svc *Service, port string) *BackendTLSPolicy {
	for _, t := range []BackendTarget{{svc.Hostname, port}, {svc.Hostname, ""}} {
		for _, p := range list {
			if p.Namespace == svc.Namespace && slices.Contains(p.Targets, t) {
				return p
			}
		}
	}
	return nil
}

// ClientTLS is how who calls secures connections; usable tells whether a ConfigMap has CAs.
func (p *BackendTLSPolicy) ClientTLS(usable func(Key) bool) *ClientTLS {
	out := &ClientTLS{Mode: TLSSimple, SNI: p.SNI, SubjectAltNames: p.SubjectAltNames}
	if len(out.SubjectAltNames) == 0 {
		out.SubjectAltNames = []string{p.SNI}
	}
	if p.System {
		return out
	}
	out.CredentialName = NoCredential(p.Key)
	if i := slices.IndexFunc(p.CAs, usable); i >= 0 {
		out.CredentialName = schemeConfigMap + p.CAs[i].Namespace + "/" + p.CAs[i].Name
	}
	return out
}

// Credentials are the ConfigMaps that have CAs for it.
func (p *BackendTLSPolicy) Credentials() []NeededSecret {
	var out []NeededSecret
	for _, k := range p.CAs {
		out = append(out, NeededSecret{Key: k})
	}
	return out
}
