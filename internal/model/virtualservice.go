package model

import (
	"net/netip"
	"time"
)

// GatewayMesh is the gateway name that stands for all sidecars.
const GatewayMesh = "mesh"

// VirtualService routes the traffic of its hosts. Hosts are full names.
type VirtualService struct {
	Meta
	Hosts      []Host   // empty for a delegate
	Gateways   []string // "mesh", or "namespace/name"; never empty but for a delegate
	HTTP       []HTTPRoute
	TLS        []TLSRoute
	TCP        []TCPRoute
	Visibility Visibility
}

// InMesh tells whether sidecars obey the virtual service.
func (v *VirtualService) InMesh() bool { return contains(v.Gateways, GatewayMesh) }

// Destination is a service, or a subset of it. Port 0 means the service's only port
// or else the port that was called.
type Destination struct {
	Host   Host
	Subset string
	Port   uint32
}

// HTTPRoute is one rule. Exactly one of Redirect, DirectResponse, Delegate and
// Backends is set.
type HTTPRoute struct {
	Name           string
	Matches        []HTTPMatch // any of them; none: everything
	Backends       []Backend
	Redirect       *Redirect
	DirectResponse *DirectResponse
	Delegate       *Key // of a VirtualService without hosts

	Rewrite *Rewrite
	Timeout *time.Duration // nil: the mesh's default; 0: none
	Retry   *Retry         // nil: the mesh's default
	Fault   *Fault
	Mirrors []Mirror
	CORS    *CORS
	Headers Headers
}

// Backend is a weighted destination. Weights are relative; a single one has all.
type Backend struct {
	Destination
	Weight  uint32
	Headers Headers
	// Grant is what a ReferenceGrant has to allow, of the Service; nil: nothing has to.
	Grant *Key
}

// HTTPMatch holds when all of its parts do. Zero parts hold always.
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

// MatchKind says how a string is compared.
type MatchKind uint8

// The kinds of StringMatch. Present needs no value.
const (
	MatchExact MatchKind = iota
	MatchPrefix
	MatchRegex // RE2, on the whole string
	MatchPresent
	MatchPathPrefix // of whole segments: "/a" is no prefix of "/ab"; paths only
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

// HeaderOps are the changes of one direction.
type HeaderOps struct {
	Set, Add []HeaderValue
	Remove   []string
}

// HeaderValue is a header with its value.
type HeaderValue struct{ Name, Value string }

// Redirect answers with a redirection.
type Redirect struct {
	URI           string // replaces the path; empty keeps it
	PrefixRewrite string // replaces the matched prefix
	Authority     string
	Scheme        string
	Port          uint32 // 0: none named
	// PortFromRequest keeps the port the client used (FROM_REQUEST_PORT).
	PortFromRequest bool
	Code            uint32 // 301 where none was given
}

// DirectResponse answers by itself.
type DirectResponse struct {
	Status uint32
	Body   []byte
}

// NoBackend answers where routes of a kind lead to nobody: with 500, of which gRPC's clients would make
// UNKNOWN, or with what they take for UNAVAILABLE. The Gateway API says so.
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

// Retry is a retry policy. Attempts 0 switches retries off.
type Retry struct {
	Attempts                uint32
	PerTryTimeout           time.Duration // 0: the route's timeout
	RetryOn                 string        // Envoy's words, comma separated; empty: the default
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

// Mirror copies requests to a destination that nobody waits for.
type Mirror struct {
	Destination
	Percent float64
}

// CORS answers cross-origin requests.
type CORS struct {
	AllowOrigins     []StringMatch
	AllowMethods     []string
	AllowHeaders     []string
	ExposeHeaders    []string
	MaxAge           *time.Duration
	AllowCredentials *bool
	// ForwardUnmatched passes preflights of unknown origins on; default true.
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
