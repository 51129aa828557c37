package ir

import "github.com/moonsail/moonsail/internal/model"

// Authorization decides which calls a chain accepts. Its parts apply in this order, and the first that refuses a call ends
// it. Policies are in the order of their age, those of the mesh before those of the namespace.
type Authorization struct {
	// TrustDomains are the mesh's own and its aliases, which are equivalent.
	TrustDomains []string
	Custom       []ExternalAuthorization // by provider's name
	Audit        []*model.AuthorizationPolicy
	Deny         []*model.AuthorizationPolicy
	// Allow refuses what none of its policies matches. Without policies it accepts everything.
	Allow []*model.AuthorizationPolicy
}

// ExternalAuthorization asks a provider about the calls that its policies match.
type ExternalAuthorization struct {
	Name     string                    // of the provider
	Provider *model.ExternalAuthorizer // nil: it does not exist or Conflicts, and such calls are refused
	// Conflicts: other policies of the workload name other providers, which the mesh does not allow.
	Conflicts bool
	Cluster   string // of the provider
	Policies  []*model.AuthorizationPolicy
}

// JWT are the rules for tokens of requests. A request without a token passes.
type JWT struct {
	Rules []JWTRule
}

// JWTRule is a rule with its keys.
type JWTRule struct {
	model.JWTRule
	// Keys is a JSON Web Key Set; empty: no token is valid.
	Keys string
}

// Secret is a certificate with its key, or certificates of CAs.
type Secret struct {
	Made

	Name        string // "kubernetes://api-client", of CAs with "-cacert"
	Certificate string // a chain in PEM; empty: CA is set
	PrivateKey  model.PrivateKey
	OCSPStaple  string // in DER; empty: none
	CA, CRL     string // in PEM
}
