package model

import (
	"strings"
	"time"
)

// The kinds of request authentication.
const (
	KindRequestAuthentication Kind = "RequestAuthentication"
	KindKeySet                Kind = "KeySet" // see KeySet
)

// RequestAuthentication says which tokens of requests are valid. A request without a token
// passes, one with a token that no rule finds valid does not.
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

// JWTRule is about the tokens of one issuer.
type JWTRule struct {
	Issuer    string // empty: any
	Audiences []string
	Keys      string // a JSON Web Key Set; empty: it is fetched
	KeysURI   string // that Keys are fetched from; empty: the issuer tells (OpenID discovery)
	// Where tokens are looked for; where nothing is said, in the header Authorization after
	// "Bearer " and in the query parameter access_token.
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

// NoKeys is a key set without anybody who could sign: the private half of its key was thrown
// away when it was made. It stands where there are no keys, so that every token is refused.
const NoKeys = `{"keys":[{"e":"AQAB","kty":"RSA","n":"qfkqo3MCwFxiz9Ii2PziKLsiJlND5Ut6RH1Wok_FUK4pC3VdgH9bWXo2UHPfpIchwTMbAPAp1rODgR4YdxZuQDYreGt3EoI0e0nriO_Lz2hTTKSdqkmNHj8CNpyrKVNQoFx5yiFjdXtAX60Fkp0SoyrG93aIYyfHrEWYm36beod2iq5Cozoq7IehHunn9wgJLwxws7nmfFABhakVHSchqMgpeli_LTIK-yDv-xD0QTlyXNeYef_fg7c4lMA4r3p9jK7YzzbihtZpZXZwuzn_R3iRv06NQTKKb0HjtCx2GEV8C4ZvMGSwdFa5BygnhOhmFHXFNEaJmslJ1CpArkrxyw"}]}`

const discoveryPath = "/.well-known/openid-configuration"

// KeySource is where the keys of a rule are fetched from; "" where the rule has them. It is
// the name of their KeySet.
func (r *JWTRule) KeySource() string {
	switch {
	case r.Keys != "":
		return ""
	case r.KeysURI != "":
		return r.KeysURI
	}
	return strings.TrimSuffix(r.Issuer, "/") + discoveryPath
}

// Discovers tells whether the source of keys is a document of OpenID discovery, which names
// the place of the keys.
func (r *JWTRule) Discovers() bool { return r.Keys == "" && r.KeysURI == "" }

// KeySet is what was fetched from a JWTRule's KeySource, which is its name. No source has such
// objects; the control plane fetches them. Where there is none, no token of the rule is valid.
type KeySet struct {
	Meta
	Keys    string // a JSON Web Key Set: the last that could be fetched; empty: none could be
	Problem string // why the last attempt to fetch it has failed; empty: it has not
}
