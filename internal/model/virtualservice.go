package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// GatewayMesh is the gateway name that means all sidecars.
const GatewayMesh = "mesh"

// VirtualService routes the traffic of its hosts. Hosts are full names.
type VirtualService struct {
	Meta
	Hosts      []Host   // empty for a delegate; only of Gateways, if there are Parents
	Gateways   []string // "mesh", or "namespace/name"; never empty but for a delegate
	HTTP       []HTTPRoute
	TLS        []TLSRoute
	TCP        []TCPRoute
	Visibility Visibility
	// Parents are the Services and ServiceEntries of a route of the Gateway API that is for sidecars, too.
	Parents []MeshParent
}

// InMesh reports whether the virtual service applies to sidecars.
func (v *VirtualService) InMesh() bool { return contains(v.Gateways, GatewayMesh) }

// Destination is a service, or a subset of it. Port 0: the service's only port, else the port of the call.
type Destination struct {
	Host   Host
	Subset string
	Port   uint32
	// PortName is the name of a port of a Service, if Port is 0: only Ingresses have it.
	PortName string
}

// HTTPRoute is one rule. Exactly one of Redirect, DirectResponse, Delegate and
// Backends is set.
type HTTPRoute struct {
	Name           string
	Matches        []HTTPMatch // any of them; none: all requests
	Backends       []Backend
	Redirect       *Redirect
	DirectResponse *DirectResponse
	Delegate       *Key // of a VirtualService without hosts

	Rewrite *Rewrite
	Timeout *time.Duration // nil: the mesh's default; 0: none
	Retry   *Retry         // nil: the mesh's default
	Fault   *Fault
	Mirrors *Mirrors // nil: none
	CORS    *CORS
	Headers Headers
}

// Backend is a weighted destination. Weights are relative; a single one gets all.
type Backend struct {
	Destination
	Weight  uint32
	Headers Headers
	// Grant is the Service that a ReferenceGrant must allow; nil: none is needed.
	Grant *Key
}

// HTTPMatch matches if all of its parts match. Zero parts always match.
type HTTPMatch struct {
	Name            string
	URI             *StringMatch
	IgnoreURICase   bool
	Scheme          *StringMatch
	Method          *StringMatch
	Authority       *StringMatch
	Headers         []HeaderMatch // sorted by name
	WithoutHeaders  []HeaderMatch
	QueryParams     []HeaderMatch
	Port            uint32
	SourceLabels    map[string]string
	SourceNamespace string
	Gateways        []string // empty: the virtual service's
	StatPrefix      string
}

// MatchKind is how a string is compared.
type MatchKind uint8

// The kinds of StringMatch. Present needs no value.
const (
	MatchExact MatchKind = iota
	MatchPrefix
	MatchRegex // RE2, on the whole string
	MatchPresent
	MatchPathPrefix // by whole segments: "/a" does not match "/ab"; paths only
)

// StringMatch compares one string.
type StringMatch struct {
	Kind  MatchKind
	Value string
}

// HeaderMatch compares one header or query parameter.
type HeaderMatch struct {
	Name string
	StringMatch
}

// Headers changes headers; request operations before response ones. Sorted by name.
type Headers struct {
	Request, Response HeaderOps
}

// ChangeNone reports whether no headers change.
func (h Headers) ChangeNone() bool {
	none := func(o HeaderOps) bool { return len(o.Set)+len(o.Add)+len(o.Remove) == 0 }
	return none(h.Request) && none(h.Response)
}

// HeaderOps are the changes of one direction.
type HeaderOps struct {
	Set, Add []HeaderValue
	Remove   []string
}

// HeaderValue is a header with its value.
type HeaderValue struct{ Name, Value string }

// Redirect answers with a redirect.
type Redirect struct {
	URI           string // replaces the path; empty keeps it
	PrefixRewrite string // replaces the matched prefix
	// Regex and RegexTo replace what the expression matches in the path; an empty Regex: nothing.
	Regex, RegexTo string
	Authority      string
	Scheme         string
	Port           uint32 // 0: not set
	// PortFromRequest keeps the port of the request (FROM_REQUEST_PORT).
	PortFromRequest bool
	// WritesPort writes the port into locations also if it is the default one of the scheme.
	WritesPort bool
	Code       uint32 // 301 by default
}

// DirectResponse answers without an upstream.
type DirectResponse struct {
	Status uint32
	Body   []byte
}

// NoBackend returns the answer of routes of a kind without backends: 500, which gRPC clients would map to UNKNOWN, or
// for gRPC what they map to UNAVAILABLE. The Gateway API requires it.
func NoBackend(kind Kind) *DirectResponse {
	if kind == KindGRPCRoute {
		return &DirectResponse{Status: 503}
	}
	return &DirectResponse{Status: 500}
}

// Rewrite changes path and authority before forwarding.
type Rewrite struct {
	URI       string
	Authority string
	Regex     string // with RegexTo, instead of URI
	RegexTo   string
}

// Retry is a retry policy. Attempts 0 disables retries.
type Retry struct {
	Attempts                uint32
	PerTryTimeout           time.Duration // 0: the route's timeout
	RetryOn                 string        // in Envoy's terms, separated by commas; empty: the default
	Backoff                 time.Duration // 0: the default
	RetryRemoteLocalities   bool
	IgnorePreviousHostsFlag *bool // nil: true, as in Istio
}

// Fault is injected by the client's sidecar. Percentages are 0 to 100.
type Fault struct {
	Delay        time.Duration
	DelayPercent float64
	AbortHTTP    uint32 // 0: none
	AbortGRPC    string // a gRPC status code's name or number; empty: none
	AbortPercent float64
}

// Mirrors are the mirrors of a rule: a single one, and a list. Each of the fields may be unset, so that the rule of a
// delegate takes it from the delegating rule.
type Mirrors struct {
	Single  *Destination
	Percent *float64 // of Single; nil: all requests
	List    []Mirror
}

// Mirror copies requests to a destination whose answers are ignored.
type Mirror struct {
	Destination
	Percent float64
}

// Used lists the mirrors that get requests.
func (m *Mirrors) Used() []Mirror {
	if m == nil {
		return nil
	}
	var out []Mirror
	if m.Single != nil {
		single := Mirror{*m.Single, 100}
		if m.Percent != nil {
			single.Percent = *m.Percent
		}
		out = append(out, single)
	}
	return slices.DeleteFunc(append(out, m.List...), func(m Mirror) bool { return m.Percent == 0 })
}

// Or returns m with the fields of root that m does not set.
func (m *Mirrors) Or(root *Mirrors) *Mirrors {
	if m == nil || root == nil {
		return cmp.Or(m, root)
	}
	out := &Mirrors{cmp.Or(m.Single, root.Single), cmp.Or(m.Percent, root.Percent), m.List}
	if out.List == nil {
		out.List = root.List
	}
	return out
}

// CORS answers cross-origin requests.
type CORS struct {
	AllowOrigins     []StringMatch
	AllowMethods     []string
	AllowHeaders     []string
	ExposeHeaders    []string
	MaxAge           *time.Duration
	AllowCredentials *bool
	// ForwardUnmatched forwards preflights of unknown origins; default true.
	ForwardUnmatched *bool
}

// L4Match is the match of TCP and TLS routes.
type L4Match struct {
	SNIHosts        []Host // TLS only
	Destinations    []netip.Prefix
	Port            uint32
	SourceLabels    map[string]string
	SourceNamespace string
	Gateways        []string
}

// TLSRoute routes by SNI, without decrypting.
type TLSRoute struct {
	Matches  []L4Match
	Backends []Backend
}

// TCPRoute routes connections.
type TCPRoute struct {
	Matches  []L4Match
	Backends []Backend
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// Specificity ranks matches in the Gateway API's order: exact paths, then other conditions on paths by length, then
// methods, headers and query parameters.
type Specificity [5]int

// SpecificityOf returns the specificity of a match with these conditions.
func SpecificityOf(uri, method *StringMatch, headers, queryParams []HeaderMatch) (out Specificity) {
	if uri != nil {
		out[1] = len(uri.Value)
		if uri.Kind == MatchExact {
			out[0] = 1
		}
	}
	if method != nil {
		out[2] = 1
	}
	out[3], out[4] = len(headers), len(queryParams)
	return out
}

// Compare puts the more specific one first.
func (s Specificity) Compare(o Specificity) int { return slices.Compare(o[:], s[:]) }

// ClaimPrefix begins names of "headers" that are claims of a valid token, in routes of gateways.
const ClaimPrefix = "@request.auth.claims"

// IsClaim reports whether a header name refers to a claim. Case is ignored, as in Istio.
func IsClaim(header string) bool {
	return len(header) >= len(ClaimPrefix) && strings.EqualFold(header[:len(ClaimPrefix)], ClaimPrefix)
}

// ClaimNames returns a claim and the nested claims in "@request.auth.claims[realm][roles]", or with dots in
// "@request.auth.claims.realm.roles". nil: none.
func ClaimNames(header string) []string {
	if !IsClaim(header) {
		return nil
	}
	rest, separator := header[len(ClaimPrefix):], "]["
	inner, ok := strings.CutPrefix(rest, "[")
	if ok {
		inner, ok = strings.CutSuffix(inner, "]")
	} else {
		separator = "."
		inner, ok = strings.CutPrefix(rest, ".")
	}
	names := strings.Split(inner, separator)
	if !ok || slices.Contains(names, "") {
		return nil
	}
	return names
}
