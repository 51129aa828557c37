package simulate

import (
	"fmt"
	"maps"
	"math"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Result is the outcome of a call. Its text leaves out empty fields.
type Result struct {
	Listener    string `yaml:"listener,omitempty" json:"listener,omitempty"`
	Chain       string `yaml:"chain,omitempty" json:"chain,omitempty"`
	RouteConfig string `yaml:"routeConfig,omitempty" json:"routeConfig,omitempty"`
	VirtualHost string `yaml:"virtualHost,omitempty" json:"virtualHost,omitempty"`
	Route       string `yaml:"route,omitempty" json:"route,omitempty"`
	// RouteOrigin is the object that the route was made from: its path at the API server.
	RouteOrigin string `yaml:"routeOrigin,omitempty" json:"routeOrigin,omitempty"`

	// Decisions are the results of policies for the call, in the order of evaluation.
	Decisions []Decision `yaml:"decisions,omitempty" json:"decisions,omitempty"`

	// Filters are the network filters of the chain.
	Filters []*listenerv3.Filter `yaml:"-" json:"-"`
	// EndsTLS is set if the client's TLS ends at the proxy, or would if the proxy accepted the client.
	EndsTLS bool `yaml:"-" json:"-"`
	// AssumedSigned are the issuers of tokens that count as signed by Call.AssumeSigned.
	AssumedSigned []string `yaml:"-" json:"-"`
	// ALPN is the protocol that a proxy that ends TLS selects of those that the client offers.
	ALPN string `yaml:"alpn,omitempty" json:"alpn,omitempty"`
	// Closed is why the connection was closed without an answer.
	Closed string `yaml:"closed,omitempty" json:"closed,omitempty"`
	// Status is the status of an answer that the proxy itself gives; 0: the call is forwarded.
	Status int `yaml:"status,omitempty" json:"status,omitempty"`
	// GRPCStatus is set if the answer is for a gRPC request: its HTTP status is 200, and this is its grpc-status, which follows from Status.
	GRPCStatus *uint32 `yaml:"grpcStatus,omitempty" json:"grpcStatus,omitempty"`
	Reason     string  `yaml:"reason,omitempty" json:"reason,omitempty"` // of Status, if the configuration does not give the reason
	Location   string  `yaml:"location,omitempty" json:"location,omitempty"`
	Body       string  `yaml:"body,omitempty" json:"body,omitempty"`

	// Clusters are the shares of the clusters, in percent.
	Clusters map[string]float64 `yaml:"clusters,omitempty" json:"clusters,omitempty"`
	// Endpoints are the shares of the endpoints over all clusters, in percent.
	Endpoints map[string]float64 `yaml:"endpoints,omitempty" json:"endpoints,omitempty"`

	// Path and Authority are those that the upstream gets, if all upstreams get the same.
	Path      string `yaml:"path,omitempty" json:"path,omitempty"`
	Authority string `yaml:"authority,omitempty" json:"authority,omitempty"`
	// RequestHeaders are those that all upstreams get, without pseudo headers.
	RequestHeaders map[string]string `yaml:"requestHeaders,omitempty" json:"requestHeaders,omitempty"`
	// ResponseHeaders are those that the proxy adds to every answer.
	ResponseHeaders map[string]string `yaml:"responseHeaders,omitempty" json:"responseHeaders,omitempty"`
	// ResponseRemoved are removed from the upstream's answer. Sorted.
	ResponseRemoved []string `yaml:"responseRemoved,omitempty" json:"responseRemoved,omitempty"`

	Timeout string   `yaml:"timeout,omitempty" json:"timeout,omitempty"` // "none" if there is none
	Retry   *Retry   `yaml:"retry,omitempty" json:"retry,omitempty"`
	Fault   *Fault   `yaml:"fault,omitempty" json:"fault,omitempty"`
	CORS    *CORS    `yaml:"cors,omitempty" json:"cors,omitempty"`
	Mirrors []Mirror `yaml:"mirrors,omitempty" json:"mirrors,omitempty"`
	Hash    []string `yaml:"hash,omitempty" json:"hash,omitempty"`
	// Tunnel is the request that opens a tunnel for a connection: "CONNECT host:port", or with POST.
	Tunnel string `yaml:"tunnel,omitempty" json:"tunnel,omitempty"`

	// Upstreams are the clusters of Clusters, in the order of the route.
	Upstreams []Upstream `yaml:"upstreams,omitempty" json:"upstreams,omitempty"`
}

// Unreached reports whether a call fails because no endpoint of its clusters can be reached.
func (r *Result) Unreached() bool {
	return r.Status != 0 && (r.Reason == NoHealthyUpstream || r.Reason == unknownCluster) || r.Closed == NoHealthyUpstream
}

// Retry is the effective retry policy.
type Retry struct {
	Attempts      uint32   `yaml:"attempts" json:"attempts"`
	On            string   `yaml:"on" json:"on"`
	PerTry        string   `yaml:"perTry,omitempty" json:"perTry,omitempty"`
	Codes         []uint32 `yaml:"codes,omitempty" json:"codes,omitempty"`
	Backoff       string   `yaml:"backoff,omitempty" json:"backoff,omitempty"`
	PreviousHosts bool     `yaml:"avoidsPreviousHosts,omitempty" json:"avoidsPreviousHosts,omitempty"`
	// OtherLocalities is set if retries may leave the locality of the first attempt.
	OtherLocalities bool `yaml:"otherLocalities,omitempty" json:"otherLocalities,omitempty"`
}

// Fault is the effect of the fault filter, and the percentage of requests.
type Fault struct {
	Delay        string  `yaml:"delay,omitempty" json:"delay,omitempty"`
	DelayPercent float64 `yaml:"delayPercent,omitempty" json:"delayPercent,omitempty"`
	Abort        uint32  `yaml:"abort,omitempty" json:"abort,omitempty"`
	AbortGRPC    *uint32 `yaml:"abortGRPC,omitempty" json:"abortGRPC,omitempty"`
	AbortPercent float64 `yaml:"abortPercent,omitempty" json:"abortPercent,omitempty"`
}

// CORS is the result of the CORS filter for the request's origin.
type CORS struct {
	Allowed bool `yaml:"allowed" json:"allowed"`
	// Preflight is set if the proxy answers the request itself: it is a preflight request of an allowed
	// origin.
	Preflight bool `yaml:"preflight,omitempty" json:"preflight,omitempty"`
}

// Mirror gets copies of some percent of the requests.
type Mirror struct {
	Cluster string  `yaml:"cluster" json:"cluster"`
	Percent float64 `yaml:"percent" json:"percent"`
}

// Upstream is one cluster of a call.
type Upstream struct {
	Cluster string  `yaml:"cluster" json:"cluster"`
	Percent float64 `yaml:"percent" json:"percent"`
	// Origin is the object that shaped the cluster, TLSOrigin another one that secures it, Service the host
	// that it leads to.
	Origin    string `yaml:"origin,omitempty" json:"origin,omitempty"`
	TLSOrigin string `yaml:"tlsOrigin,omitempty" json:"tlsOrigin,omitempty"`
	Service   string `yaml:"service,omitempty" json:"service,omitempty"`
	// Authority, RequestHeaders and ResponseHeaders are set if the upstreams differ.
	Authority       string            `yaml:"authority,omitempty" json:"authority,omitempty"`
	RequestHeaders  map[string]string `yaml:"requestHeaders,omitempty" json:"requestHeaders,omitempty"`
	ResponseHeaders map[string]string `yaml:"responseHeaders,omitempty" json:"responseHeaders,omitempty"`

	Discovery string     `yaml:"discovery,omitempty" json:"discovery,omitempty"`
	LB        string     `yaml:"lb,omitempty" json:"lb,omitempty"`
	Protocol  string     `yaml:"protocol,omitempty" json:"protocol,omitempty"` // "http1", "http2", "downstream", "auto"
	TLS       *ClientTLS `yaml:"tls,omitempty" json:"tls,omitempty"`
	Connect   string     `yaml:"connectTimeout,omitempty" json:"connectTimeout,omitempty"`
	Limits    *Limits    `yaml:"limits,omitempty" json:"limits,omitempty"`
	Outlier   *Outlier   `yaml:"outlier,omitempty" json:"outlier,omitempty"`
	Source    string     `yaml:"source,omitempty" json:"source,omitempty"` // source address of connections

	Endpoints []Endpoint `yaml:"endpoints,omitempty" json:"endpoints,omitempty"`

	authority         string
	forwardsHost      bool // x-forwarded-host has the host that authority replaces
	request, response map[string]string
	removed           []string
}

// ClientTLS is how the connection to the upstream is secured.
type ClientTLS struct {
	SNI  string   `yaml:"sni,omitempty" json:"sni,omitempty"`
	ALPN []string `yaml:"alpn,omitempty" json:"alpn,omitempty"`
	CA   string   `yaml:"ca,omitempty" json:"ca,omitempty"`
	Cert string   `yaml:"cert,omitempty" json:"cert,omitempty"`
	SANs []string `yaml:"sans,omitempty" json:"sans,omitempty"`
}

// Limits are circuit breakers and connection limits; 0 means Envoy's default.
type Limits struct {
	Connections           uint32 `yaml:"connections,omitempty" json:"connections,omitempty"`
	Pending               uint32 `yaml:"pending,omitempty" json:"pending,omitempty"`
	Requests              uint32 `yaml:"requests,omitempty" json:"requests,omitempty"`
	Retries               uint32 `yaml:"retries,omitempty" json:"retries,omitempty"`
	RequestsPerConnection uint32 `yaml:"requestsPerConnection,omitempty" json:"requestsPerConnection,omitempty"`
}

// Outlier is the outlier detection of a cluster.
type Outlier struct {
	Consecutive5xx     *uint32 `yaml:"consecutive5xx,omitempty" json:"consecutive5xx,omitempty"`
	ConsecutiveGateway *uint32 `yaml:"consecutiveGateway,omitempty" json:"consecutiveGateway,omitempty"`
	Interval           string  `yaml:"interval,omitempty" json:"interval,omitempty"`
	Ejection           string  `yaml:"ejection,omitempty" json:"ejection,omitempty"`
	MaxPercent         *uint32 `yaml:"maxPercent,omitempty" json:"maxPercent,omitempty"`
}

// Endpoint is one endpoint of a cluster with its share of the cluster's calls.
type Endpoint struct {
	Address  string  `yaml:"address" json:"address"`
	Percent  float64 `yaml:"percent" json:"percent"`
	Weight   uint32  `yaml:"weight,omitempty" json:"weight,omitempty"` // if not 1
	Priority uint32  `yaml:"priority,omitempty" json:"priority,omitempty"`
	Health   string  `yaml:"health,omitempty" json:"health,omitempty"` // if not healthy
	Locality string  `yaml:"locality,omitempty" json:"locality,omitempty"`
	// Plain is set for endpoints that get plain text, if others of their cluster get TLS.
	Plain bool `yaml:"plain,omitempty" json:"plain,omitempty"`

	hostname    string
	socketMatch *structpb.Struct // selects its transport socket
}

// String returns the result as YAML. Equal results have equal texts.
func (r *Result) String() string {
	b, err := yaml.Marshal(r)
	if err != nil {
		return "unprintable result: " + err.Error()
	}
	return string(b)
}

// percent rounds shares to two digits.
func percent(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(part/whole*1e4) / 1e2
}

// summarise fills the fields about all upstreams together.
func (r *Result) summarise() {
	r.Clusters, r.Endpoints = map[string]float64{}, map[string]float64{}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		r.Clusters[u.Cluster] = round(r.Clusters[u.Cluster] + u.Percent)
		for _, e := range u.Endpoints {
			if e.Percent > 0 {
				r.Endpoints[e.Address] = round(r.Endpoints[e.Address] + e.Percent*u.Percent/100)
			}
		}
	}
	if len(r.Upstreams) == 0 {
		return
	}
	r.agree()
}

func round(f float64) float64 { return math.Round(f*100) / 100 }

// agree moves what the upstreams have in common to the result.
func (r *Result) agree() {
	if len(r.Upstreams) == 0 { // all weights are 0
		return
	}
	first := &r.Upstreams[0]
	same := true
	for _, u := range r.Upstreams[1:] {
		same = same && u.authority == first.authority && maps.Equal(u.request, first.request) &&
			maps.Equal(u.response, first.response) && slices.Equal(u.removed, first.removed)
	}
	if same {
		r.Authority, r.RequestHeaders = first.authority, first.request
		r.ResponseHeaders, r.ResponseRemoved = first.response, first.removed
		return
	}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		u.Authority, u.RequestHeaders, u.ResponseHeaders = u.authority, u.request, u.response
	}
}

// Mismatches lists the differences between the result and the expected one, one per line. want is decoded
// YAML. Only the keys that a map in it names are compared; null means absent. Lists must have equal
// lengths. The maps `clusters` and `endpoints` are compared whole, because a share that goes elsewhere is
// always a difference.
func (r *Result) Mismatches(want any) []string {
	var got any
	b, err := yaml.Marshal(r)
	if err == nil {
		err = yaml.Unmarshal(b, &got)
	}
	if err != nil {
		return []string{err.Error()}
	}
	return mismatches("", got, want, false)
}

func mismatches(at string, got, want any, whole bool) []string {
	switch w := want.(type) {
	case nil:
		if got != nil {
			return []string{fmt.Sprintf("%s: got %v, want nothing", at, got)}
		}
		return nil
	case map[string]any:
		if g, ok := got.(map[string]any); ok || got == nil {
			return mapMismatches(at, g, w, whole)
		}
	case []any:
		g, ok := got.([]any)
		if ok && len(g) == len(w) {
			return listMismatches(at, g, w)
		}
	default:
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s: got %v, want %v", at, shown(got), want)}
}

func shown(v any) any {
	if v == nil {
		return "nothing"
	}
	return v
}

func mapMismatches(at string, got, want map[string]any, whole bool) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		exact := at == "" && (k == "clusters" || k == "endpoints")
		out = append(out, mismatches(join(at, k), got[k], want[k], exact)...)
	}
	if !whole {
		return out
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			out = append(out, fmt.Sprintf("%s: got %v, want nothing", join(at, k), got[k]))
		}
	}
	return out
}

func listMismatches(at string, got, want []any) []string {
	var out []string
	for i := range want {
		out = append(out, mismatches(fmt.Sprintf("%s[%d]", at, i), got[i], want[i], false)...)
	}
	return out
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}
