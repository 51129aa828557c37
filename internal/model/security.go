package model

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// LabelTLSMode is the label of a workload whose sidecar uses mutual TLS. The injector sets it.
const (
	LabelTLSMode      = "security.istio.io/tlsMode"
	TLSModeLabelIstio = "istio"
)

// EntrySpeaksMTLS reports whether a WorkloadEntry, or an endpoint of a ServiceEntry, has a sidecar with an identity. Without
// the label, a service account means that it has one, as in Istio.
func EntrySpeaksMTLS(labels map[string]string, account string) bool {
	if mode, ok := labels[LabelTLSMode]; ok {
		return mode == TLSModeLabelIstio
	}
	return account != ""
}

// MTLSMode is what a workload's sidecar accepts.
type MTLSMode string

// The modes. Unset inherits: a workload's mode from its namespace's, that from the mesh's, which is PERMISSIVE.
const (
	MTLSUnset      MTLSMode = ""
	MTLSDisable    MTLSMode = "DISABLE"    // plain text; TLS is the application's
	MTLSPermissive MTLSMode = "PERMISSIVE" // both
	MTLSStrict     MTLSMode = "STRICT"     // mutual TLS only
)

// PeerAuthentication determines what workloads accept. In the root namespace without a selector it applies to the mesh.
// With a selector it applies only in other namespaces, as in Istio.
type PeerAuthentication struct {
	Meta
	Selector map[string]string // empty: the whole namespace
	Mode     MTLSMode
	Ports    map[uint32]MTLSMode // by workload port; only with a selector
}

// SelectorLabels returns the labels of its workloads.
func (p *PeerAuthentication) SelectorLabels() map[string]string { return p.Selector }

// ShapesOutbound returns false: endpoints contain what callers need.
func (p *PeerAuthentication) ShapesOutbound() bool { return false }

// Disables reports whether it alone may allow plain text on some port.
func (p *PeerAuthentication) Disables() bool {
	if p.Mode == MTLSDisable {
		return true
	}
	for _, m := range p.Ports {
		if m == MTLSDisable {
			return true
		}
	}
	return false
}

// PeerTLS is what one workload accepts, after inheritance.
type PeerTLS struct {
	Mode  MTLSMode
	Ports map[uint32]MTLSMode // by workload port, where they differ from Mode or are named
}

// Of returns the mode of a workload port.
func (t *PeerTLS) Of(port uint32) MTLSMode {
	if m, ok := t.Ports[port]; ok {
		return m
	}
	return t.Mode
}

// Accepts reports whether mutual TLS is accepted on some port.
func (t *PeerTLS) Accepts() bool {
	if t.Mode != MTLSDisable {
		return true
	}
	for _, m := range t.Ports {
		if m != MTLSDisable {
			return true
		}
	}
	return false
}

// AcceptsEverywhere reports whether mutual TLS is accepted on every port.
func (t *PeerTLS) AcceptsEverywhere() bool {
	for _, m := range t.Ports {
		if m == MTLSDisable {
			return false
		}
	}
	return t.Mode != MTLSDisable
}

// EffectivePeerAuthentications returns the policies that apply to a workload, of those that select it: for each level
// (mesh, namespace, workload, in this order) the first one, which is the oldest.
func EffectivePeerAuthentications(rootNamespace string, policies []*PeerAuthentication) []*PeerAuthentication {
	levels := peerLevels(rootNamespace, policies)
	return slices.DeleteFunc(levels[:], func(p *PeerAuthentication) bool { return p == nil })
}

func peerLevels(rootNamespace string, policies []*PeerAuthentication) (levels [3]*PeerAuthentication) {
	for _, p := range policies {
		level := 1
		switch {
		case len(p.Selector) > 0 && p.Namespace == rootNamespace:
			continue
		case len(p.Selector) > 0:
			level = 2
		case p.Namespace == rootNamespace:
			level = 0
		}
		if levels[level] == nil {
			levels[level] = p
		}
	}
	return levels
}

// EffectivePeerTLS merges the policies of a workload; see EffectivePeerAuthentications.
func EffectivePeerTLS(rootNamespace string, policies []*PeerAuthentication) *PeerTLS {
	levels := peerLevels(rootNamespace, policies)
	out := &PeerTLS{Mode: MTLSPermissive}
	for _, p := range levels {
		if p != nil && p.Mode != MTLSUnset {
			out.Mode = p.Mode
		}
	}
	if w := levels[2]; w != nil && len(w.Ports) > 0 {
		out.Ports = maps.Clone(w.Ports)
		for port, mode := range out.Ports {
			if mode == MTLSUnset {
				out.Ports[port] = out.Mode
			}
		}
	}
	return out
}

// The kinds of request authentication.
const (
	KindRequestAuthentication Kind = "RequestAuthentication"
	KindKeySet                Kind = "KeySet" // see KeySet
)

// RequestAuthentication determines which tokens of requests are valid. A request without a token passes. One with a
// token that no rule accepts is refused.
type RequestAuthentication struct {
	Meta
	Selector map[string]string // empty: all workloads of its namespace
	Targets
	Rules []JWTRule
}

// SelectorLabels implements Selecting.
func (a *RequestAuthentication) SelectorLabels() map[string]string { return a.Selector }

// ShapesOutbound implements Selecting.
func (a *RequestAuthentication) ShapesOutbound() bool { return false }

// JWTRule applies to the tokens of one issuer.
type JWTRule struct {
	Issuer    string // empty: any
	Audiences []string
	Keys      string // a JSON Web Key Set; empty: it is fetched
	KeysURI   string // source of Keys; empty: the issuer's OpenID discovery
	// Where tokens are; by default in the header Authorization after "Bearer " and in the query parameter access_token.
	FromHeaders []JWTHeader
	FromParams  []string
	FromCookies []string
	// What the workload gets.
	Forward         bool          // the token stays in the request
	PayloadToHeader string        // the payload, in base64url
	ClaimsToHeaders []ClaimHeader // claims of their own
	SpaceDelimited  []string      // claims that are lists of words, beside "scope" and "permission"
	Timeout         time.Duration // of fetching keys; 0: 5 s
}

// JWTHeader is a header that tokens are in.
type JWTHeader struct {
	Name, Prefix string
}

// ClaimHeader puts a claim into a header.
type ClaimHeader struct {
	Header, Claim string
}

// NoKeys is a key set whose private key was discarded when it was generated. It replaces missing keys, so that every
// token is refused.
const NoKeys = `{"keys":[{"e":"AQAB","kty":"RSA","n":"qfkqo3MCwFxiz9Ii2PziKLsiJlND5Ut6RH1Wok_FUK4pC3VdgH9bWXo2UHPfpIchwTMbAPAp1rODgR4YdxZuQDYreGt3EoI0e0nriO_Lz2hTTKSdqkmNHj8CNpyrKVNQoFx5yiFjdXtAX60Fkp0SoyrG93aIYyfHrEWYm36beod2iq5Cozoq7IehHunn9wgJLwxws7nmfFABhakVHSchqMgpeli_LTIK-yDv-xD0QTlyXNeYef_fg7c4lMA4r3p9jK7YzzbihtZpZXZwuzn_R3iRv06NQTKKb0HjtCx2GEV8C4ZvMGSwdFa5BygnhOhmFHXFNEaJmslJ1CpArkrxyw"}]}`

const discoveryPath = "/.well-known/openid-configuration"

// KeySource returns the source of a rule's keys, the name of its KeySet; "" if the rule has keys.
func (r *JWTRule) KeySource() string {
	switch {
	case r.Keys != "":
		return ""
	case r.KeysURI != "":
		return r.KeysURI
	}
	return strings.TrimSuffix(r.Issuer, "/") + discoveryPath
}

// Discovers reports whether the source of keys is a document of OpenID discovery, which refers to the keys.
func (r *JWTRule) Discovers() bool { return r.Keys == "" && r.KeysURI == "" }

// KeySet holds the keys from a JWTRule's KeySource, which is its name. It comes from no source of objects: the control
// plane fetches it. Without one, no token of the rule is valid.
type KeySet struct {
	Meta
	Keys    string // a JSON Web Key Set: the last one that was fetched; empty: none
	Problem string // why the last fetch failed; empty: it succeeded
	LeftOut string // why Keys has not all keys of the source; empty: it has them
}

// KindAuthorizationPolicy is the kind of Istio's AuthorizationPolicies.
const KindAuthorizationPolicy Kind = "AuthorizationPolicy"

// AuthorizationPolicy determines which calls its workloads accept.
type AuthorizationPolicy struct {
	Meta
	Selector map[string]string // empty: all workloads of its namespace
	Targets
	Action   AuthorizationAction
	Provider string // of AuthorizeCustom: the name of an ExternalAuthorizer
	// DryRun policies are evaluated and counted, without effect.
	DryRun bool
	// Rules: the policy applies to a call that any of them matches, so never without rules.
	Rules []AuthorizationRule
}

// SelectorLabels implements Selecting.
func (p *AuthorizationPolicy) SelectorLabels() map[string]string { return p.Selector }

// ShapesOutbound implements Selecting.
func (p *AuthorizationPolicy) ShapesOutbound() bool { return false }

// AuthorizationAction is the effect of a policy on a call that it matches.
type AuthorizationAction string

// The actions in the order of evaluation. If a workload has an AuthorizeAllow policy, calls that match none of these
// are refused.
const (
	AuthorizeCustom AuthorizationAction = "CUSTOM" // an external authorizer decides
	AuthorizeAudit  AuthorizationAction = "AUDIT"  // the call is marked in the access log
	AuthorizeDeny   AuthorizationAction = "DENY"
	AuthorizeAllow  AuthorizationAction = "ALLOW"
)

// AuthorizationRule matches a call if one of From, one of To and all of When match.
type AuthorizationRule struct {
	From []AuthorizationMatch // empty: any caller
	To   []AuthorizationMatch // empty: any operation
	When AuthorizationMatch
}

// AuthorizationMatch matches if all of its conditions match; without conditions, always.
type AuthorizationMatch []AuthorizationCondition

// AuthorizationCondition compares an attribute of a call. It must match one of Values, if there are any, and none of
// Not. Values are exact or, unless the attribute has other forms, "prefix*", "*suffix" or "*" (present and not empty).
type AuthorizationCondition struct {
	Attribute Attribute
	// Names are the header, or the claim with the nested claims, or the filter's metadata and the key in it.
	Names       []string
	Values, Not []string
}

// Attribute is what a condition compares, in the words of Istio's conditions.
type Attribute string

// The attributes.
const (
	AttributePrincipal        Attribute = "source.principal"      // trust-domain/ns/NAMESPACE/sa/ACCOUNT
	AttributeNamespace        Attribute = "source.namespace"      // "*" anywhere
	AttributeServiceAccount   Attribute = "source.serviceAccount" // NAME or NAMESPACE/NAME, exact
	AttributeTrustDomain      Attribute = "source.trustDomain"
	AttributeSourceIP         Attribute = "source.ip"              // addresses and CIDR blocks: of the connection
	AttributeRemoteIP         Attribute = "remote.ip"              // as source.ip, from X-Forwarded-For
	AttributeRequestPrincipal Attribute = "request.auth.principal" // ISSUER/SUBJECT of a valid token
	AttributeAudiences        Attribute = "request.auth.audiences"
	AttributePresenter        Attribute = "request.auth.presenter"
	AttributeClaims           Attribute = "request.auth.claims"
	AttributeHeaders          Attribute = "request.headers"
	AttributeHost             Attribute = "request.host" // case does not matter
	AttributeMethod           Attribute = "request.method"
	AttributePath             Attribute = "request.path" // or a template with {*} and {**}
	AttributeDestinationIP    Attribute = "destination.ip"
	AttributeDestinationPort  Attribute = "destination.port" // exact numbers
	AttributeSNI              Attribute = "connection.sni"
	AttributeFilterMetadata   Attribute = "experimental.envoy.filters." // "[value]" is one of a list
)

// HTTPOnly reports whether only HTTP requests have the attribute.
func (a Attribute) HTTPOnly() bool {
	switch a {
	case AttributeRequestPrincipal, AttributeAudiences, AttributePresenter, AttributeClaims,
		AttributeHeaders, AttributeHost, AttributeMethod, AttributePath:
		return true
	}
	return false
}

// FromToken reports whether the attribute comes from a token that a RequestAuthentication has accepted.
func (a Attribute) FromToken() bool {
	switch a {
	case AttributeRequestPrincipal, AttributeAudiences, AttributePresenter, AttributeClaims:
		return true
	}
	return false
}

// FromPeer reports whether the attribute comes from the client's certificate. In plain text it matches no value.
func (a Attribute) FromPeer() bool {
	switch a {
	case AttributePrincipal, AttributeNamespace, AttributeServiceAccount, AttributeTrustDomain:
		return true
	}
	return false
}

// OfOperation reports whether the attribute is about the operation; otherwise it is about the caller.
func (a Attribute) OfOperation() bool {
	switch a {
	case AttributeHost, AttributeMethod, AttributePath, AttributeDestinationIP,
		AttributeDestinationPort, AttributeSNI, AttributeFilterMetadata:
		return true
	}
	return false
}
