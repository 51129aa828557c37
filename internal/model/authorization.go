package model

// KindAuthorizationPolicy is Istio's AuthorizationPolicy.
const KindAuthorizationPolicy Kind = "AuthorizationPolicy"

// AuthorizationPolicy says which calls the workloads take that it selects.
type AuthorizationPolicy struct {
	Meta
	Selector map[string]string // empty: all workloads of its namespace
	Targets
	Action   AuthorizationAction
	Provider string // of AuthorizeCustom: the name of an ExternalAuthorizer
	// DryRun policies are evaluated and counted, but decide nothing.
	DryRun bool
	// Rules: the policy holds for a call that any of them matches, so never without rules.
	Rules []AuthorizationRule
}

// SelectorLabels implements Selecting.
func (p *AuthorizationPolicy) SelectorLabels() map[string]string { return p.Selector }

// ShapesOutbound implements Selecting.
func (p *AuthorizationPolicy) ShapesOutbound() bool { return false }

// AuthorizationAction is what becomes of a call that a policy matches.
type AuthorizationAction string

// The actions, in the order in which they are asked for. As soon as there is an AuthorizeAllow
// policy for a workload, what none of these matches is refused.
const (
	AuthorizeCustom AuthorizationAction = "CUSTOM" // an external authorizer decides
	AuthorizeAudit  AuthorizationAction = "AUDIT"  // the call is marked in the access log
	AuthorizeDeny   AuthorizationAction = "DENY"
	AuthorizeAllow  AuthorizationAction = "ALLOW"
)

// AuthorizationRule matches a call where one of From, one of To and all of When do.
type AuthorizationRule struct {
	From []AuthorizationMatch // empty: anybody
	To   []AuthorizationMatch // empty: anything
	When AuthorizationMatch
}

// AuthorizationMatch matches where all of its conditions do; without conditions, always.
type AuthorizationMatch []AuthorizationCondition

// AuthorizationCondition compares an attribute of a call: it must be like one of Values, if
// there are any, and like none of Not. Values are exact or, unless the attribute says
// otherwise, "prefix*", "*suffix" or "*" (it is there, and not empty).
type AuthorizationCondition struct {
	Attribute Attribute
	// Names are those of the header, of the claim and those within it, or of the filter's
	// metadata and the key in them.
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
	AttributeRemoteIP         Attribute = "remote.ip"              // likewise, but as X-Forwarded-For says
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

// HTTPOnly tells whether only HTTP requests have the attribute, and not any connection.
func (a Attribute) HTTPOnly() bool {
	switch a {
	case AttributeRequestPrincipal, AttributeAudiences, AttributePresenter, AttributeClaims,
		AttributeHeaders, AttributeHost, AttributeMethod, AttributePath:
		return true
	}
	return false
}

// FromToken tells whether the attribute is that of a token, which a RequestAuthentication has
// to have found valid.
func (a Attribute) FromToken() bool {
	switch a {
	case AttributeRequestPrincipal, AttributeAudiences, AttributePresenter, AttributeClaims:
		return true
	}
	return false
}

// FromPeer tells whether the attribute is that of the client's certificate: in plaintext it
// is never like any value.
func (a Attribute) FromPeer() bool {
	switch a {
	case AttributePrincipal, AttributeNamespace, AttributeServiceAccount, AttributeTrustDomain:
		return true
	}
	return false
}

// OfOperation tells whether the attribute is about what is called; else it is about who calls.
func (a Attribute) OfOperation() bool {
	switch a {
	case AttributeHost, AttributeMethod, AttributePath, AttributeDestinationIP,
		AttributeDestinationPort, AttributeSNI, AttributeFilterMetadata:
		return true
	}
	return false
}
