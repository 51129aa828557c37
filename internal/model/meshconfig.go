package model

import (
	"slices"
	"strings"
	"time"
)

// MeshConfig is what a cluster says of its mesh: differences from what the control plane
// was started with. nil and empty: nothing is said.
type MeshConfig struct {
	Meta
	Outbound       *OutboundMode
	LocalInbound   *bool
	OutboundPort   *uint32
	InboundPort    *uint32
	AccessLogFile  *string
	ConnectTimeout *time.Duration
	DefaultRetry   *Retry
	Telemetry      *MeshTelemetry
	TrustDomain    *string
	// TrustDomainAliases are believed beside the trust domain.
	TrustDomainAliases []string
	AutoMTLS           *bool
	OnlyTLS13          *bool
	CipherSuites       []string
	TLSDefaults        *TLSDefaults
	MeshHTTP2          *H2Upgrade
	Paths              *PathNormalization
	Topology           *Topology
	Headers            *ProxyHeaders
	Locality           *LocalityLB
	Baseline           *TrafficPolicy
	Keepalive          *TCPKeepalive
	DNSRefresh         *time.Duration
	DetectionTimeout   *time.Duration
	// Authorizers are asked by policies of action AuthorizeCustom, by name.
	Authorizers map[string]*ExternalAuthorizer
	// ExportTo are the defaults of objects that say nothing, by their kind, as written.
	// Service counts for ServiceEntries too.
	ExportTo map[Kind][]string
	// ProxyDefaults is its defaultConfig, as JSON: what ProxyConfigs are laid over.
	ProxyDefaults string
	// Discovery selects the namespaces that belong to the mesh, any of them; empty: all.
	Discovery []LabelSelector
}

// Over lays the differences over a mesh, which stays as it is. A nil MeshConfig has none.
func (c *MeshConfig) Over(base *Mesh) *Mesh {
	if c == nil {
		return base
	}
	m := *base
	set(&m.Outbound, c.Outbound)
	set(&m.LocalInbound, c.LocalInbound)
	set(&m.OutboundPort, c.OutboundPort)
	set(&m.InboundPort, c.InboundPort)
	set(&m.AccessLogFile, c.AccessLogFile)
	set(&m.ConnectTimeout, c.ConnectTimeout)
	set(&m.TrustDomain, c.TrustDomain)
	set(&m.Telemetry, c.Telemetry)
	set(&m.AutoMTLS, c.AutoMTLS)
	set(&m.OnlyTLS13, c.OnlyTLS13)
	set(&m.MeshHTTP2, c.MeshHTTP2)
	set(&m.Paths, c.Paths)
	set(&m.Topology, c.Topology)
	set(&m.Headers, c.Headers)
	m.TrustDomainAliases, m.CipherSuites, m.TLSDefaults = c.TrustDomainAliases, c.CipherSuites, c.TLSDefaults
	m.Authorizers = c.Authorizers
	set(&m.Locality, given(c.Locality))
	set(&m.Baseline, c.Baseline)
	set(&m.Keepalive, given(c.Keepalive))
	set(&m.DNSRefresh, c.DNSRefresh)
	set(&m.DetectionTimeout, given(c.DetectionTimeout))
	if c.DefaultRetry != nil {
		retryOn := m.DefaultRetry.RetryOn
		if m.DefaultRetry = *c.DefaultRetry; m.DefaultRetry.RetryOn == "" {
			m.DefaultRetry.RetryOn = retryOn
		}
	}
	return &m
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// given is nil where there is nothing to point to.
func given[T any](p *T) **T {
	if p == nil {
		return nil
	}
	return &p
}

// LabelSelector selects by labels, as in Kubernetes: all parts must hold.
type LabelSelector struct {
	Labels      map[string]string
	Expressions []LabelExpression
}

// LabelExpression compares one label.
type LabelExpression struct {
	Key      string
	Operator LabelOperator
	Values   []string // of LabelIn and LabelNotIn
}

// LabelOperator is how a label is compared.
type LabelOperator string

// The operators. LabelNotIn and LabelDoesNotExist hold where the label is not there.
const (
	LabelIn           LabelOperator = "In"
	LabelNotIn        LabelOperator = "NotIn"
	LabelExists       LabelOperator = "Exists"
	LabelDoesNotExist LabelOperator = "DoesNotExist"
)

// Matches tells whether labels are selected. A selector without parts selects everything.
func (s *LabelSelector) Matches(labels map[string]string) bool {
	if !SelectorMatches(s.Labels, labels) {
		return false
	}
	for _, e := range s.Expressions {
		if !e.matches(labels) {
			return false
		}
	}
	return true
}

func (e *LabelExpression) matches(labels map[string]string) bool {
	v, ok := labels[e.Key]
	switch e.Operator {
	case LabelIn:
		return ok && slices.Contains(e.Values, v)
	case LabelNotIn:
		return !ok || !slices.Contains(e.Values, v)
	case LabelExists:
		return ok
	}
	return !ok
}

// Mesh is the mesh-wide configuration: the part of Istio's MeshConfig that is honoured.
type Mesh struct {
	Domain         string // of the cluster: "cluster.local"
	RootNamespace  string // its Sidecar and DestinationRules are defaults for all
	Outbound       OutboundMode
	ConnectTimeout time.Duration
	AccessLogFile  string // empty: none
	Telemetry      MeshTelemetry
	DefaultRetry   Retry
	InboundRetry   Retry  // of sidecars' calls of their own application; not of gRPC
	InboundPort    uint32 // where connections to workloads are redirected to; Istio's is 15006
	// LocalInbound: applications are called at the loopback address, not where the connection was going.
	LocalInbound bool
	OutboundPort uint32 // likewise those that they make; Istio's is 15001

	TrustDomain        string   // of the mesh's identities
	TrustDomainAliases []string // that are believed, too
	AutoMTLS           bool     // callers speak mutual TLS to whoever has a sidecar
	// OnlyTLS13: workloads take the mesh's mutual TLS of no older version; else of 1.2, too.
	OnlyTLS13 bool
	// CipherSuites are those that workloads take the mesh's mutual TLS 1.2 with; empty: Envoy's default.
	// TLS 1.3 has its own.
	CipherSuites []string
	TLSDefaults  *TLSDefaults // nil: Envoy's
	// MeshHTTP2: whether sidecars speak HTTP/2 to sidecars, whatever their applications speak. By default they
	// do, but where limits are set that are about connections of HTTP/1.1.
	MeshHTTP2 H2Upgrade

	Authorizers map[string]*ExternalAuthorizer // by name

	Paths PathNormalization // of all requests; empty: PathsBase

	Topology Topology // of gateways that say nothing of their own

	Headers ProxyHeaders // of proxies that say nothing of their own

	// Baseline is what holds of calls where a DestinationRule says nothing: connection pool and outlier detection alone.
	Baseline TrafficPolicy

	Keepalive *TCPKeepalive // of connections to upstreams; a DestinationRule's fields go before
	// DNSRefresh is how often names are resolved where the answer has no time to live; 0: Istio's default.
	DNSRefresh time.Duration
	// DetectionTimeout bounds how long a client may keep silent before its connection is taken for a protocol in
	// which the server speaks first; nil: the default, 0: for ever.
	DetectionTimeout *time.Duration

	AutoAddresses AutoAddresses // of ServiceEntries without addresses

	// Locality is for services of which neither a DestinationRule nor the service says anything. nil: failover to
	// near endpoints where outlier detection is on.
	Locality *LocalityLB
}

// PathNormalization is what sidecars and gateways make of the path of a request before routes and
// policies look at it. What comes of it goes on to the application.
type PathNormalization string

// Istio's: each does what the one before does, too.
const (
	PathsAsTheyAre   PathNormalization = "NONE"
	PathsBase        PathNormalization = "BASE" // RFC 3986: "/a/../b" is "/b"
	PathsMerged      PathNormalization = "MERGE_SLASHES"
	PathsDecodeSlash PathNormalization = "DECODE_AND_MERGE_SLASHES" // %2F and %5C are slashes, first of all
)

// TrustDomains are all whose identities are believed, the mesh's own first.
func (m *Mesh) TrustDomains() []string {
	return append([]string{m.TrustDomain}, m.TrustDomainAliases...)
}

// DefaultMesh is Istio's default where Istio has one.
func DefaultMesh() *Mesh {
	return &Mesh{
		Domain:         "cluster.local",
		RootNamespace:  "istio-system",
		Outbound:       OutboundAllowAny,
		ConnectTimeout: 10 * time.Second,
		DefaultRetry: Retry{
			Attempts: 2,
			// Without codes the last word counts for those of a request's x-envoy-retriable-status-codes.
			RetryOn: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		},
		InboundRetry: Retry{Attempts: 2, RetryOn: "reset-before-request"},
		Telemetry:    DefaultMeshTelemetry(),
		InboundPort:  15006,
		OutboundPort: 15001,
		TrustDomain:  DefaultTrustDomain,
		AutoMTLS:     true,

		AutoAddresses: DefaultAutoAddresses(),
	}
}

// ProviderKind is what a provider of telemetry is.
type ProviderKind string

// The kinds, as MeshConfig's fields are called.
const (
	ProviderPrometheus    ProviderKind = "prometheus"
	ProviderFileLog       ProviderKind = "envoyFileAccessLog"
	ProviderOTelLog       ProviderKind = "envoyOtelAls"
	ProviderHTTPLog       ProviderKind = "envoyHttpAls"
	ProviderTCPLog        ProviderKind = "envoyTcpAls"
	ProviderZipkin        ProviderKind = "zipkin"
	ProviderOpenTelemetry ProviderKind = "opentelemetry"
	ProviderDatadog       ProviderKind = "datadog"
	ProviderSkyWalking    ProviderKind = "skywalking"
)

// IsLog tells whether access logs can go to the provider.
func (k ProviderKind) IsLog() bool {
	return k == ProviderFileLog || k == ProviderOTelLog || k == ProviderHTTPLog || k == ProviderTCPLog
}

// IsTracing tells whether spans can go to the provider.
func (k ProviderKind) IsTracing() bool {
	return k == ProviderZipkin || k == ProviderOpenTelemetry || k == ProviderDatadog || k == ProviderSkyWalking
}

// Provider is where telemetry goes: one of MeshConfig's extensionProviders.
type Provider struct {
	Name string
	Kind ProviderKind

	// Of those that are services.
	Namespace string // of the service; empty: not said
	Host      Host
	Port      uint32

	Log LogFormat // of logs
	// LogName, FilterState and the headers are for gRPC access logs.
	LogName         string
	FilterState     []string
	RequestHeaders  []string
	ResponseHeaders []string
	Trailers        []string

	// Of tracing.
	MaxTagLength uint32        // of the path's tag; 0: Envoy's default
	Path         string        // of the collector, over HTTP; empty for OpenTelemetry: gRPC
	Timeout      time.Duration // 0: Envoy's default
	Headers      []HeaderValue // that the collector gets, with Envoy's command operators
	ShortIDs     bool          // zipkin's 64-bit ids
	W3C          bool          // zipkin tells the trace as W3C, too
	Environment  bool          // OpenTelemetry's resource has what the environment says
	Token        string        // that SkyWalking's collector asks for
}

// LogFormat is how lines of an access log look. Empty: Istio's text.
type LogFormat struct {
	Path string // of the file
	Text string
	// JSON is an object with a format for each field; the text is the body then, where
	// there are both.
	JSON      string
	OmitEmpty bool
}

// MeshTelemetry is what the mesh tells of calls where no Telemetry says otherwise.
type MeshTelemetry struct {
	Providers []Provider
	// Names of the default providers.
	Metrics, Logging, Tracing []string
	// AccessLog is the format of the mesh's AccessLogFile.
	AccessLog LogFormat
	// Collector is where spans go if nobody names a provider; nil: nowhere.
	Collector    *Provider
	Sampling     float64 // percent
	Tags         map[string]TraceTag
	MaxTagLength uint32
	NoIstioTags  bool // spans have none of Istio's tags
	// PrometheusMerge: injected sidecars offer the application's metrics with their own.
	PrometheusMerge bool
}

// DefaultMeshTelemetry is Istio's: metrics for Prometheus, and nothing else.
func DefaultMeshTelemetry() MeshTelemetry {
	return MeshTelemetry{
		Providers: []Provider{
			{Name: "prometheus", Kind: ProviderPrometheus},
			{Name: "envoy", Kind: ProviderFileLog, Log: LogFormat{Path: "/dev/stdout"}},
		},
		Metrics: []string{"prometheus"}, Sampling: 1, PrometheusMerge: true,
	}
}

// Provider finds a provider by its name, whose case does not count; nil: there is none.
func (m *MeshTelemetry) Provider(name string) *Provider {
	for i := range m.Providers {
		if strings.EqualFold(m.Providers[i].Name, name) {
			return &m.Providers[i]
		}
	}
	return nil
}

// ExternalAuthorizer is a service that decides about calls: a provider of MeshConfig that is
// of kind envoyExtAuthzHttp or envoyExtAuthzGrpc. Policies of action AuthorizeCustom name it.
type ExternalAuthorizer struct {
	Name      string
	Namespace string // of the service; empty: not said
	Host      Host
	Port      uint32
	Timeout   time.Duration
	// FailOpen lets calls pass that the service gives no answer to; else they are answered
	// with StatusOnError (0: 403).
	FailOpen      bool
	StatusOnError uint32
	// ClearRouteCache: routes are chosen again after the headers that it has changed.
	ClearRouteCache bool
	Body            *AuthorizerBody // nil: the body is not sent
	HTTP            *HTTPAuthorizer // nil: it speaks gRPC
}

// AuthorizerBody is how much of a request's body an authorizer gets.
type AuthorizerBody struct {
	MaxBytes uint32
	Partial  bool // longer ones are cut; else they are refused
	AsBytes  bool // not as UTF-8 text
}

// HTTPAuthorizer is how an authorizer is asked over HTTP. Headers are exact names, "prefix*"
// or "*suffix".
type HTTPAuthorizer struct {
	PathPrefix string
	// Sent are the headers of the request that it gets, Added those that are put in.
	Sent  []string
	Added map[string]string
	// ToUpstream are the headers of its consent that the workload gets; ToClientOnAllow and
	// ToClientOnDeny those that the client gets, with the consent and with its refusal.
	ToUpstream      []string
	ToClientOnAllow []string
	ToClientOnDeny  []string
}

// TLSDefaults are for TLS that is not the mesh's own: that which gateways and sidecars end as a Gateway or a
// Sidecar says, and that of calls as a DestinationRule says. Empty: Envoy's defaults.
type TLSDefaults struct {
	MinVersion   string   // "TLSv1_2"; as in Istio of what is ended alone
	CipherSuites []string // of TLS 1.2 and older
	ECDHCurves   []string
}

// Under is a server's TLS with the defaults for what it says nothing of. The server's newest version goes before
// the oldest of the defaults. d may be nil; t stays as it is.
func (d *TLSDefaults) Under(t *ServerTLS) *ServerTLS {
	if d == nil {
		return t
	}
	out := *t
	if out.MinVersion == "" {
		out.MinVersion = d.MinVersion
		if out.MaxVersion != "" {
			out.MinVersion = min(out.MinVersion, out.MaxVersion) // their names ascend
		}
	}
	if len(out.CipherSuites) == 0 {
		out.CipherSuites = d.CipherSuites
	}
	out.ECDHCurves = d.ECDHCurves
	return &out
}
