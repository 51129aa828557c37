package model

import (
	"log/slog"
	"slices"
	"strings"
)

// KindSecret is the kind of Kubernetes' Secrets. Only Secrets that objects name as credentials are read.
const KindSecret Kind = "Secret"

// LabelRemoteCluster is Istio's label of Secrets with access to a remote cluster.
const LabelRemoteCluster = "istio/multiCluster"

// Secret is a certificate with its key, or CA certificates, or both; or credentials for image registries.
type Secret struct {
	Meta
	Certificate string // a chain in PEM, the leaf first; empty: none
	PrivateKey  PrivateKey
	OCSPStaple  string // an OCSP response for Certificate, in DER; empty: none
	CA          string // certificates in PEM; empty: none
	CRL         string // in PEM; of certificates that CA has signed
	// Login is a Docker configuration with credentials for registries, in JSON; zero: none.
	Login PrivateKey
	// Problem is why there is no valid certificate with a key, CAProblem why there are no CAs; empty: there are. They
	// name fields, and contain no part of a key.
	Problem, CAProblem string
	// StapleProblem is why there is no OCSPStaple, although the Secret has one; empty: there is, or it has none.
	StapleProblem string
	// CALeftOut describes certificates that CA does not have, because they cannot be read; empty: none.
	CALeftOut string
	// Readers are the service accounts that may have the key; nil: all. One of another namespace, whose Gateways a
	// ReferenceGrant allows to refer to the Secret, is "NAMESPACE/NAME". All workloads of the namespace may have CA
	// certificates.
	Readers []string
}

// NoSecret is the problem of a missing Secret.
const NoSecret = "it does not exist"

// MayRead reports whether a service account, in the form of Readers, may have the key.
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

// PrivateKey is a key that prints as "[redacted]" in pages, dumps and log lines. Only PEM returns it.
type PrivateKey struct{ pem string }

// NewPrivateKey returns a key from PEM.
func NewPrivateKey(pem string) PrivateKey { return PrivateKey{pem} }

const redacted = "[redacted]"

// PEM returns the key.
func (k PrivateKey) PEM() string { return k.pem }

// String implements fmt.Stringer.
func (k PrivateKey) String() string {
	if k.pem == "" {
		return ""
	}
	return redacted
}

// Equal reports whether two keys are equal.
func (k PrivateKey) Equal(o PrivateKey) bool { return k == o }

// GoString implements fmt.GoStringer.
func (k PrivateKey) GoString() string { return k.String() }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML ask too.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// LogValue implements slog.LogValuer.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

// KindConfigMap is the kind of ConfigMaps with CA certificates, which are handled as Secrets without keys. The mesh's
// configuration is a ConfigMap too: see IsMeshConfig.
const KindConfigMap = KindMeshConfig

// MeshConfigName is the name of the mesh's configuration in the model, in the root namespace. It is also the default name of
// its ConfigMap.
const MeshConfigName = "istio"

// IsMeshConfig reports whether a ConfigMap has the mesh's configuration instead of certificates.
func (k Key) IsMeshConfig() bool { return k.Kind == KindMeshConfig && k.Name == MeshConfigName }

// Credential is a decoded credentialName.
type Credential struct {
	Kind      Kind   // KindSecret or KindConfigMap
	Namespace string // empty: the proxy's namespace
	Name      string
}

// SuffixCA added to a Secret's name is the name of a Secret with its CAs, which takes precedence.
const SuffixCA = "-cacert"

const (
	schemeKubernetes = "kubernetes://"
	schemeConfigMap  = "configmap://"
	schemeInvalid    = "invalid://"
)

// NoCredential returns a credential name without a Secret: connections that need it fail. The name contains the object
// that caused it.
func NoCredential(of Key) string { return schemeInvalid + of.Namespace + "/" + of.Name }

// IsNoCredential reports whether a credential name is from NoCredential.
func IsNoCredential(s string) bool { return strings.HasPrefix(s, schemeInvalid) }

// IsConfigMap reports whether a credential name refers to a ConfigMap.
func IsConfigMap(s string) bool { return strings.HasPrefix(s, schemeConfigMap) }

// IsCredentialURL reports whether a text is the SDS name of a credential.
func IsCredentialURL(s string) bool {
	return IsConfigMap(s) || IsNoCredential(s) || strings.HasPrefix(s, schemeKubernetes)
}

// ParseCredential decodes "NAME", "kubernetes://NAME", "kubernetes://NAMESPACE/NAME" or "configmap://NAMESPACE/NAME";
// false: another form.
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

// CredentialURL returns the SDS name of a credential, as in Istio.
func CredentialURL(s string) string {
	if IsCredentialURL(s) {
		return s
	}
	return schemeKubernetes + s
}

// In returns the Secret of a credential for workloads of a namespace; false: it is in another namespace, and not for
// them. All workloads may use ConfigMaps, which have no SuffixCA.
func (c Credential) In(namespace string) (Key, bool) {
	if c.Kind == KindConfigMap {
		return c.Key(), true
	}
	if c.Namespace != "" && c.Namespace != namespace {
		return Key{}, false
	}
	return Key{Kind: KindSecret, Namespace: namespace, Name: c.Name}, true
}

// Key returns the Secret or ConfigMap of a credential with a namespace.
func (c Credential) Key() Key { return Key(c) }

// NeededSecret is a Secret that workloads need.
type NeededSecret struct {
	Key
	PrivateKey bool // the key is needed, not only CAs
}

// NeedsSecrets reports whether one of them is a Secret and not a ConfigMap.
func NeedsSecrets(list []NeededSecret) bool {
	return slices.ContainsFunc(list, func(n NeededSecret) bool { return n.Kind == KindSecret })
}

// Credentials returns the Secrets of its namespace that a rule's clients need. With each that has CAs it returns the
// one that takes precedence if it exists. ConfigMaps have only CAs.
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
