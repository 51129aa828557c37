package ir

import "github.com/moonsail/moonsail/internal/model"

// Authorization decides which calls a chain takes. Its parts are asked in this order, and the
// first that refuses a call ends it. Policies are the oldest first, those of the mesh before
// those of the namespace.
type Authorization struct {
	// TrustDomains are the mesh's own and its aliases, which stand for each other.
	TrustDomains []string
	Custom       []ExternalAuthorization // by provider's name
	Audit        []*model.AuthorizationPolicy
	Deny         []*model.AuthorizationPolicy
	// Allow refuses what none of its policies matches; without policies it takes everything.
	Allow []*model.AuthorizationPolicy
}

// ExternalAuthorization asks a provider about the calls that its policies match.
type ExternalAuthorization struct {
	Name     string                    // of the provider
	Provider *model.ExternalAuthorizer // nil: it cannot be asked, so such calls are refused
	Cluster  string                    // that leads to it
	Policies []*model.AuthorizationPolicy
}

// JWT are the rules by which tokens of requests are checked. A request without a token passes.
type JWT struct {
	Rules []JWTRule
}

// JWTRule is a rule with its keys.
type JWTRule struct {
	model.JWTRule
	// Keys is a JSON Web Key Set; empty: there are none, so that no token is valid.
	Keys string
}
