package simulate

import (
	"maps"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Result is what became of a call. Empty fields are left out of its text.
type Result struct {
	Listener    string `yaml:"listener,omitempty"`
	Chain       string `yaml:"chain,omitempty"`
	RouteConfig string `yaml:"routeConfig,omitempty"`
	VirtualHost string `yaml:"virtualHost,omitempty"`
	Route       string `yaml:"route,omitempty"`

	// Closed says why the connection was closed without any answer.
	Closed string `yaml:"closed,omitempty"`
	// Status is the answer that the proxy gives by itself; 0: the call is forwarded.
	Status   int    `yaml:"status,omitempty"`
	Reason   string `yaml:"reason,omitempty"` // of Status, where the configuration does not say it
	Location string `yaml:"location,omitempty"`
	Body     string `yaml:"body,omitempty"`

	// Clusters are the shares of the clusters, in percent.
	Clusters map[string]float64 `yaml:"clusters,omitempty"`
	// Endpoints are the shares of the endpoints over all clusters, in percent.
	Endpoints map[string]float64 `yaml:"endpoints,omitempty"`

	// Path and Authority as the upstream gets them, where all upstreams get the same.
	Path      string `yaml:"path,omitempty"`
	Authority string `yaml:"authority,omitempty"`
	// RequestHeaders are those that all upstreams get, without pseudo headers.
	RequestHeaders map[string]string `yaml:"requestHeaders,omitempty"`
	// ResponseHeaders are those that the proxy adds to any answer.
	ResponseHeaders map[string]string `yaml:"responseHeaders,omitempty"`
	// ResponseRemoved are taken out of the upstream's answer. Sorted.
	ResponseRemoved []string `yaml:"responseRemoved,omitempty"`

	Timeout string   `yaml:"timeout,omitempty"` // "none" where there is none
	Retry   *Retry   `yaml:"retry,omitempty"`
	Fault   *Fault   `yaml:"fault,omitempty"`
	CORS    *CORS    `yaml:"cors,omitempty"`
	Mirrors []Mirror `yaml:"mirrors,omitempty"`
	Hash    []string `yaml:"hash,omitempty"`

	// Upstreams are the clusters of Clusters, in the order of the route.
	Upstreams []Upstream `yaml:"upstreams,omitempty"`
}

// Retry is the retry policy that holds.
type Retry struct {
	Attempts      uint32   `yaml:"attempts"`
	On            string   `yaml:"on"`
	PerTry        string   `yaml:"perTry,omitempty"`
	Codes         []uint32 `yaml:"codes,omitempty"`
	Backoff       string   `yaml:"backoff,omitempty"`
	PreviousHosts bool     `yaml:"avoidsPreviousHosts,omitempty"`
}

// Fault is what the fault filter does, and to how many percent.
type Fault struct {
	Delay        string  `yaml:"delay,omitempty"`
	DelayPercent float64 `yaml:"delayPercent,omitempty"`
	Abort        uint32  `yaml:"abort,omitempty"`
	AbortGRPC    *uint32 `yaml:"abortGRPC,omitempty"`
	AbortPercent float64 `yaml:"abortPercent,omitempty"`
}

// CORS tells what the CORS filter does with the request's origin.
type CORS struct {
	Allowed bool `yaml:"allowed"`
	// Preflight requests that are allowed are answered by the proxy.
	Preflight bool `yaml:"preflight,omitempty"`
}

// Mirror gets copies of some percent of the requests.
type Mirror struct {
	Cluster string  `yaml:"cluster"`
	Percent float64 `yaml:"percent"`
}

// Upstream is one cluster of a call.
type Upstream struct {
	Cluster string  `yaml:"cluster"`
	Percent float64 `yaml:"percent"`
	// Authority, RequestHeaders and ResponseHeaders are given where the upstreams differ.
	Authority       string            `yaml:"authority,omitempty"`
	RequestHeaders  map[string]string `yaml:"requestHeaders,omitempty"`
	ResponseHeaders map[string]string `yaml:"responseHeaders,omitempty"`

	Discovery string     `yaml:"discovery,omitempty"`
	LB        string     `yaml:"lb,omitempty"`
	Protocol  string     `yaml:"protocol,omitempty"` // "http1", "http2", "downstream", "auto"
	TLS       *ClientTLS `yaml:"tls,omitempty"`
	Connect   string     `yaml:"connectTimeout,omitempty"`
	Limits    *Limits    `yaml:"limits,omitempty"`
	Outlier   *Outlier   `yaml:"outlier,omitempty"`
	Source    string     `yaml:"source,omitempty"` // address that connections are made from

	Endpoints []Endpoint `yaml:"endpoints,omitempty"`

	authority         string
	request, response map[string]string
	removed           []string
}

// ClientTLS is how the connection to the upstream is secured.
type ClientTLS struct {
	SNI  string   `yaml:"sni,omitempty"`
	ALPN []string `yaml:"alpn,omitempty"`
	CA   string   `yaml:"ca,omitempty"`
	Cert string   `yaml:"cert,omitempty"`
	SANs []string `yaml:"sans,omitempty"`
}

// Limits are circuit breakers and connection limits; 0 means Envoy's default.
type Limits struct {
	Connections           uint32 `yaml:"connections,omitempty"`
	Pending               uint32 `yaml:"pending,omitempty"`
	Requests              uint32 `yaml:"requests,omitempty"`
	Retries               uint32 `yaml:"retries,omitempty"`
	RequestsPerConnection uint32 `yaml:"requestsPerConnection,omitempty"`
}

// Outlier is the outlier detection of a cluster.
type Outlier struct {
	Consecutive5xx     *uint32 `yaml:"consecutive5xx,omitempty"`
	ConsecutiveGateway *uint32 `yaml:"consecutiveGateway,omitempty"`
	Interval           string  `yaml:"interval,omitempty"`
	Ejection           string  `yaml:"ejection,omitempty"`
	MaxPercent         *uint32 `yaml:"maxPercent,omitempty"`
}

// Endpoint is one endpoint of a cluster with its share of the cluster's calls.
type Endpoint struct {
	Address  string  `yaml:"address"`
	Percent  float64 `yaml:"percent"`
	Weight   uint32  `yaml:"weight,omitempty"` // where it is not 1
	Priority uint32  `yaml:"priority,omitempty"`
	Health   string  `yaml:"health,omitempty"` // where it is not healthy
	Locality string  `yaml:"locality,omitempty"`

	hostname string
}

// String is the result as YAML: the same for the same result, always.
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

// summarise fills what is told of all upstreams together.
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

// agree lifts what the upstreams have in common to the result itself.
func (r *Result) agree() {
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
