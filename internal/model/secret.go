package model

import (
	"log/slog"
	"slices"
	"strings"
)

// KindSecret is the kind of Kubernetes' Secrets, of which only those are read that some
// object names as a credential.
const KindSecret Kind = "Secret"

// Secret is a certificate with its key, or certificates of CAs, or both; or credentials for
// registries of images.
type Secret struct {
	Meta
	Certificate string // a chain in PEM, the leaf first; empty: it has none
	PrivateKey  PrivateKey
	CA          string // certificates in PEM; empty: it has none
	CRL         string // in PEM; of those that CA signs
	// Login is a Docker configuration with credentials for registries, in JSON; zero: it has none.
	Login PrivateKey
	// Problem is why it has no certificate with a key that could be used, CAProblem why it has
	// no CAs; empty: it has. They name fields and never what is in them.
	Problem, CAProblem string
	// Readers are the service accounts that may have the key; nil: all may. One of another namespace, whose
	// Gateways a ReferenceGrant lets refer to it, is "NAMESPACE/NAME".
	// Certificates of CAs are for every workload of the namespace.
	Readers []string
}

// NoSecret is the problem of one that does not exist.
const NoSecret = "it does not exist"

// MayRead tells whether a service account, as Readers call it, may have the key.
func (s *Secret) MayRead(account string) bool {
	if s.Readers == nil {
		return true
	}
	for _, r := range s.Readers {
		if r == account {
			return true
		}
	}
	return false
}

// PrivateKey is a key that shows itself to nobody who does not ask for its PEM: pages, dumps
// and log lines have "[redacted]" in its place.
type PrivateKey struct{ pem string }

// NewPrivateKey makes one of PEM.
func NewPrivateKey(pem string) PrivateKey { return PrivateKey{pem} }

const redacted = "[redacted]"

// PEM is the key itself.
func (k PrivateKey) PEM() string { return k.pem }

// String implements fmt.Stringer.
func (k PrivateKey) String() string {
	if k.pem == "" {
		return ""
	}
	return redacted
}

// Equal tells whether two keys are the same.
func (k PrivateKey) Equal(o PrivateKey) bool { return k == o }

// GoString implements fmt.GoStringer.
func (k PrivateKey) GoString() string { return k.String() }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML ask too.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// LogValue implements slog.LogValuer.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

// KindConfigMap is the kind of ConfigMaps with certificates of CAs, which are Secrets without keys.
// That of the mesh's configuration is one, too: see IsMeshConfig.
const KindConfigMap = KindMeshConfig

// MeshConfigName is the name of the ConfigMap that has the mesh's configuration, in the root
// namespace.
const MeshConfigName = "istio"

// IsMeshConfig tells whether a ConfigMap has the mesh's configuration, and not certificates.
func (k Key) IsMeshConfig() bool { return k.Kind == KindMeshConfig && k.Name == MeshConfigName }

// Credential is what a credentialName names.
type Credential struct {
	Kind      Kind   // KindSecret or KindConfigMap
	Namespace string // empty: that of the proxy
	Name      string
}

// SuffixCA makes a Secret's name that of its CAs: a Secret of this name has them, where there
// is one.
const SuffixCA = "-cacert"

const (
	schemeKubernetes = "kubernetes://"
	schemeConfigMap  = "configmap://"
	schemeInvalid    = "invalid://"
)

// NoCredential is a credential's name that nobody is served anything under: connections that need it fail. It
// says on whose account.
func NoCredential(of Key) string { return schemeInvalid + of.Namespace + "/" + of.Name }

// IsNoCredential tells whether a credential's name is such.
func IsNoCredential(s string) bool { return strings.HasPrefix(s, schemeInvalid) }

// IsConfigMap tells whether a credential's name says that it is a ConfigMap.
func IsConfigMap(s string) bool { return strings.HasPrefix(s, schemeConfigMap) }

// IsCredentialURL tells whether SDS calls a credential by this name.
func IsCredentialURL(s string) bool {
	return IsConfigMap(s) || IsNoCredential(s) || strings.HasPrefix(s, schemeKubernetes)
}

// ParseCredential reads "NAME", "kubernetes://NAME", "kubernetes://NAMESPACE/NAME" or
// "configmap://NAMESPACE/NAME"; false: it is none of these.
func ParseCredential(s string) (Credential, bool) {
	if rest, ok := strings.CutPrefix(s, schemeConfigMap); ok {
		ns, name, _ := strings.Cut(rest, "/")
		return Credential{KindConfigMap, ns, name}, ns != "" && name != "" && name != MeshConfigName && !strings.Contains(name, "/")
	}
	rest, isURL := strings.CutPrefix(s, schemeKubernetes)
	if !isURL && strings.ContainsAny(s, ":/") {
		return Credential{}, false
	}
	ns, name, both := strings.Cut(rest, "/")
	if !both {
		ns, name = "", rest
	}
	if name == "" || both && ns == "" || strings.Contains(name, "/") {
		return Credential{}, false
	}
	return Credential{KindSecret, ns, name}, true
}

// CredentialURL is how SDS calls a credential, as Istio does.
func CredentialURL(s string) string {
	if IsCredentialURL(s) {
		return s
	}
	return schemeKubernetes + s
}

// In is the Secret that a credential means to workloads of a namespace; false: it is of another
// namespace, whose Secrets are not for them. ConfigMaps are for all, and SuffixCA is part of their
// names: there are none beside them.
func (c Credential) In(namespace string) (Key, bool) {
	if c.Kind == KindConfigMap {
		return c.Key(), true
	}
	if c.Namespace != "" && c.Namespace != namespace {
		return Key{}, false
	}
	return Key{Kind: KindSecret, Namespace: namespace, Name: c.Name}, true
}

// Key is the Secret or ConfigMap that a credential with a namespace names.
func (c Credential) Key() Key { return Key(c) }

// NeededSecret is a Secret that workloads need.
type NeededSecret struct {
	Key
	PrivateKey bool // and not only CAs of it
}

// NeedsSecrets tells whether any of these is a Secret, and no ConfigMap.
func NeedsSecrets(list []NeededSecret) bool {
	return slices.ContainsFunc(list, func(n NeededSecret) bool { return n.Kind == KindSecret })
}

// Credentials are the Secrets that a rule's clients need, of its own namespace: with each that
// has CAs the one that takes precedence where it exists. ConfigMaps have CAs alone.
func (r *DestinationRule) Credentials() []NeededSecret {
	var out []NeededSecret
	r.eachPolicy(func(p TrafficPolicy) {
		t := p.TLS
		if t == nil || t.Mode != TLSSimple && t.Mode != TLSMutual {
			return
		}
		c, ok := ParseCredential(t.CredentialName)
		key, own := c.In(r.Namespace)
		if !ok || !own {
			return
		}
		if c.Kind == KindConfigMap {
			out = append(out, NeededSecret{key, false})
			return
		}
		ca := key
		ca.Name += SuffixCA
		out = append(out, NeededSecret{key, t.Mode == TLSMutual}, NeededSecret{ca, false})
	})
	return out
}

func (r *DestinationRule) eachPolicy(f func(TrafficPolicy)) {
	ports := func(m map[uint32]TrafficPolicy) {
		for _, p := range m {
			f(p)
		}
	}
	f(r.Policy)
	ports(r.Ports)
	for i := range r.Subsets {
		f(r.Subsets[i].Policy)
		ports(r.Subsets[i].Ports)
	}
}
