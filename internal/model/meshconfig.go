package model

import (
	"slices"
	"strings"
	"time"
)

// MeshConfig is a cluster's mesh configuration: its differences from the settings that the control plane was started
// with. nil and empty fields are unset.
type MeshConfig struct {
	Meta
	Outbound       *OutboundMode
	Ingress        *IngressSettings
	LocalInbound   *bool
	OutboundPort   *uint32
	InboundPort    *uint32
	AccessLogFile  *string
	ConnectTimeout *time.Duration
	DefaultRetry   *Retry
	Telemetry      *MeshTelemetry
	TrustDomain    *string
	// TrustDomainAliases are accepted in addition to the trust domain.
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
	// Authorizers decide for policies of action AuthorizeCustom, by name.
	Authorizers map[string]*ExternalAuthorizer
	Connections *ConnectionSettings // of clients
	// ExportTo are the defaults of objects without exportTo, by kind, as written. Service also applies to
	// ServiceEntries.
	ExportTo map[Kind][]string
	// ProxyDefaults is defaultConfig, as JSON: the base of ProxyConfigs.
	ProxyDefaults string
	// Discovery selects the namespaces of the mesh. One matching selector is enough; empty: all namespaces.
	Discovery []LabelSelector
}

// Over returns base with the differences applied. base is unchanged. A nil MeshConfig has none.
func (c *MeshConfig) Over(base *Mesh) *Mesh {
	if c == nil {
		return base
	}
	m := *base
	set(&m.Outbound, c.Outbound)
	set(&m.Ingress, c.Ingress)
	set(&m.LocalInbound, c.LocalInbound)
	set(&m.OutboundPort, c.OutboundPort)
	set(&m.InboundPort, c.InboundPort)
	set(&m.AccessLogFile, c.AccessLogFile)
	set(&m.ConnectTimeout, c.ConnectTimeout)
	set(&m.TrustDomain, c.TrustDomain)
	if c.Telemetry != nil {
		m.Telemetry = *c.Telemetry
		m.Telemetry.BaseSampling = base.Telemetry.BaseSampling
	}
	set(&m.AutoMTLS, c.AutoMTLS)
	set(&m.OnlyTLS13, c.OnlyTLS13)
	set(&m.MeshHTTP2, c.MeshHTTP2)
	set(&m.Paths, c.Paths)
	set(&m.Topology, c.Topology)
	set(&m.Headers, c.Headers)
	m.TrustDomainAliases, m.CipherSuites, m.TLSDefaults = c.TrustDomainAliases, c.CipherSuites, c.TLSDefaults
	m.Authorizers, m.Connections = c.Authorizers, c.Connections
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

// given returns nil for a nil pointer.
func given[T any](p *T) **T {
	if p == nil {
		return nil
	}
	return &p
}

// LabelSelector selects by labels, as in Kubernetes: all parts must match.
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

// The operators. LabelNotIn and LabelDoesNotExist match if the label is missing.
const (
	LabelIn           LabelOperator = "In"
	LabelNotIn        LabelOperator = "NotIn"
	LabelExists       LabelOperator = "Exists"
	LabelDoesNotExist LabelOperator = "DoesNotExist"
)

// Matches reports whether labels are selected. A selector without parts selects everything.
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
	RootNamespace  string // its Sidecar and DestinationRules are defaults for all namespaces
	Outbound       OutboundMode
	Delivery       Delivery // empty: full
	OnDemandFrom   int      // services that a sidecar sees, from which DeliverAuto is on demand; 0: the default
	Ingress        IngressSettings
	ConnectTimeout time.Duration
	AccessLogFile  string // empty: none
	Telemetry      MeshTelemetry
	DefaultRetry   Retry
	InboundRetry   Retry  // of sidecars' calls to their application; not of gRPC
	InboundPort    uint32 // target of redirected inbound connections; Istio's is 15006
	// LocalInbound: Envoy calls applications at the loopback address instead of the original destination.
	LocalInbound bool
	OutboundPort uint32 // target of redirected outbound connections; Istio's is 15001

	TrustDomain        string   // of the mesh's identities
	TrustDomainAliases []string // accepted in addition
	AutoMTLS           bool     // callers use mutual TLS to workloads with sidecars
	// OnlyTLS13: workloads accept the mesh's mutual TLS only in version 1.3; else also in 1.2.
	OnlyTLS13 bool
	// CipherSuites are accepted for the mesh's mutual TLS 1.2; empty: Envoy's default. TLS 1.3 has its own.
	CipherSuites []string
	TLSDefaults  *TLSDefaults // nil: Envoy's
	// MeshHTTP2 determines whether sidecars use HTTP/2 between each other for any protocol of their applications. By
	// default they do, unless there are limits on connections of HTTP/1.1.
	MeshHTTP2 H2Upgrade

	Authorizers map[string]*ExternalAuthorizer // by name
	Connections *ConnectionSettings            // of clients; nil: unset

	Paths PathNormalization // of all requests; empty: PathsBase

	Topology Topology // of gateways without their own

	Headers ProxyHeaders // of proxies without their own

	// Baseline applies to calls where a DestinationRule sets nothing. It has only a connection pool and outlier
	// detection.
	Baseline TrafficPolicy

	Keepalive *TCPKeepalive // of connections to upstreams; a DestinationRule's fields override it
	// DNSRefresh is the interval of name resolution for answers without a time to live; 0: Istio's default.
	DNSRefresh time.Duration
	// DetectionTimeout bounds the wait for a client's first bytes. After it the server is assumed to speak first. nil:
	// the default; 0: no bound.
	DetectionTimeout *time.Duration

	AutoAddresses AutoAddresses // of ServiceEntries without addresses
	// SeveralAuthorizers: policies of one workload may name different authorizers. Otherwise what these policies match is
	// refused.
	SeveralAuthorizers bool
	// AnyTrustDomain: servers accept callers of every trust domain whose certificate their roots verify, for federation.
	// Otherwise only those of TrustDomains.
	AnyTrustDomain bool
	// ScopeGatewayToNamespace: Istio's Gateways are only for routers of their namespace, and Ingresses for those of the root
	// namespace. Otherwise they are for all routers that they select.
	ScopeGatewayToNamespace bool
	// StrictGatewayMerging: routers that are deployed for a Gateway of the Gateway API serve Istio's Gateways of their
	// namespace only. Otherwise also those of other namespaces, whose owners then share a listener and the access to Secrets.
	// The default is true.
	StrictGatewayMerging bool
	// GatewayClustersOfRoutes: routers get the clusters of services that their routes, authorizers and collectors use. Otherwise
	// they get those of all services that they see.
	GatewayClustersOfRoutes bool
	// BalanceHeadless: sidecars balance requests to headless services over their Pods. Otherwise a request goes to the Pod that
	// the application has connected to.
	BalanceHeadless bool
	// AbsoluteFQDN: hosts with a final dot are names of services. Otherwise they are unknown hosts. The default is true.
	AbsoluteFQDN bool
	// HTTP10: proxies accept requests of HTTP/1.0.
	HTTP10 bool
	// HandshakeTimeout bounds TLS handshakes of a gateway's clients, so that slow ones do not exhaust its memory; 0: no bound.
	HandshakeTimeout time.Duration

	// Locality applies to services without a setting in a DestinationRule or the service. nil: failover by locality if
	// outlier detection is on.
	Locality *LocalityLB
}

// PathNormalization is how sidecars and gateways normalize the path of a request before routes and policies use it. The
// application gets the normalized path.
type PathNormalization string

// Istio's values. Each includes the one before.
const (
	PathsAsTheyAre   PathNormalization = "NONE"
	PathsBase        PathNormalization = "BASE" // RFC 3986: "/a/../b" is "/b"
	PathsMerged      PathNormalization = "MERGE_SLASHES"
	PathsDecodeSlash PathNormalization = "DECODE_AND_MERGE_SLASHES" // decodes %2F and %5C to slashes first
)

// TrustDomains returns all accepted trust domains, the mesh's own first.
func (m *Mesh) TrustDomains() []string {
	return append([]string{m.TrustDomain}, m.TrustDomainAliases...)
}

// DefaultRetryOn is what policies without retryOn retry on. Without codes, the last entry applies to those in a request's
// x-envoy-retriable-status-codes.
const DefaultRetryOn = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"

// DefaultHandshakeTimeout is Istio's default.
const DefaultHandshakeTimeout = 15 * time.Second

// DefaultMesh returns Istio's defaults.
func DefaultMesh() *Mesh {
	return &Mesh{
		Domain:         "cluster.local",
		RootNamespace:  "istio-system",
		Outbound:       OutboundAllowAny,
		Ingress:        DefaultIngress(),
		ConnectTimeout: 10 * time.Second,
		DefaultRetry: Retry{
			Attempts: 2,
			RetryOn:  DefaultRetryOn,
		},
		InboundRetry: Retry{Attempts: 2, RetryOn: "reset-before-request"},
		Telemetry:    DefaultMeshTelemetry(),
		InboundPort:  15006,
		OutboundPort: 15001,
		TrustDomain:  DefaultTrustDomain,
		AutoMTLS:     true,

		AutoAddresses:        DefaultAutoAddresses(),
		StrictGatewayMerging: true,
		AbsoluteFQDN:         true,
		HandshakeTimeout:     DefaultHandshakeTimeout,
	}
}

// ProviderKind is a kind of telemetry provider.
type ProviderKind string

// The kinds, named as fields of MeshConfig.
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

// IsLog reports whether the provider accepts access logs.
func (k ProviderKind) IsLog() bool {
	return k == ProviderFileLog || k == ProviderOTelLog || k == ProviderHTTPLog || k == ProviderTCPLog
}

// IsTracing reports whether the provider accepts spans.
func (k ProviderKind) IsTracing() bool {
	return k == ProviderZipkin || k == ProviderOpenTelemetry || k == ProviderDatadog || k == ProviderSkyWalking
}

// Provider is a destination of telemetry: one of MeshConfig's extensionProviders.
type Provider struct {
	Name string
	Kind ProviderKind

	// Of those that are services.
	Namespace string // of the service; empty: not set
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
	Headers      []CollectorHeader
	ShortIDs     bool   // zipkin's 64-bit ids
	W3C          bool   // also propagates zipkin's trace as W3C
	Token        string // for SkyWalking's collector
}

// CollectorHeader is a header of requests to a collector.
type CollectorHeader struct {
	Name    string
	Value   string // as it is sent; unused with EnvName
	EnvName string // the control plane's variable with the value
	// Secret is the value of EnvName, which only this control plane knows: neither pages nor dumps of the model have it.
	Secret PrivateKey `json:"-"`
}

// Sent returns the value that is sent, and false if the header is not, because its variable has no value.
func (h *CollectorHeader) Sent() (value string, ok bool) {
	if h.EnvName == "" {
		return h.Value, true
	}
	return h.Secret.PEM(), h.Secret.PEM() != ""
}

// LogFormat is the format of access log lines. Empty: Istio's text.
type LogFormat struct {
	Path string // of the file
	Text string
	// JSON is an object with a format for each field. Of logs to OpenTelemetry it is in addition to the text.
	JSON      string
	OmitEmpty bool
}

// MeshTelemetry is the telemetry of calls without a Telemetry.
type MeshTelemetry struct {
	Providers []Provider
	// Names of the default providers.
	Metrics, Logging, Tracing []string
	// AccessLog is the format of the mesh's AccessLogFile.
	AccessLog LogFormat
	// Collector gets spans if no provider is named; nil: none.
	Collector *Provider
	Sampling  float64 // percent; 0: BaseSampling
	// BaseSampling is the control plane's setting, in percent. A MeshConfig does not change it. 0: no request is traced.
	BaseSampling float64
	Tags         map[string]TraceTag
	MaxTagLength uint32
	NoIstioTags  bool // spans have none of Istio's tags
	// PrometheusMerge: injected sidecars merge the application's metrics with their own.
	PrometheusMerge bool
}

// DefaultMeshTelemetry returns Istio's default: metrics for Prometheus only.
func DefaultMeshTelemetry() MeshTelemetry {
	return MeshTelemetry{
		Providers: []Provider{
			{Name: "prometheus", Kind: ProviderPrometheus},
			{Name: "envoy", Kind: ProviderFileLog, Log: LogFormat{Path: "/dev/stdout"}},
		},
		Metrics: []string{"prometheus"}, BaseSampling: 1, PrometheusMerge: true,
	}
}

// Provider returns a provider by its case-insensitive name; nil: none.
func (m *MeshTelemetry) Provider(name string) *Provider {
	for i := range m.Providers {
		if strings.EqualFold(m.Providers[i].Name, name) {
			return &m.Providers[i]
		}
	}
	return nil
}

// ExternalAuthorizer is a service that decides about calls: a provider of kind envoyExtAuthzHttp or envoyExtAuthzGrpc.
// Policies of action AuthorizeCustom name it.
type ExternalAuthorizer struct {
	Name      string
	Namespace string // of the service; empty: not set
	Host      Host
	Port      uint32
	Timeout   time.Duration
	// FailOpen lets calls pass without an answer of the service; else they get StatusOnError (0: 403).
	FailOpen      bool
	StatusOnError uint32
	// ClearRouteCache: the route is selected again after the service has changed headers.
	ClearRouteCache bool
	Body            *AuthorizerBody // nil: the body is not sent
	HTTP            *HTTPAuthorizer // nil: it speaks gRPC
}

// AuthorizerBody is how much of a request's body the service gets.
type AuthorizerBody struct {
	MaxBytes uint32
	Partial  bool // longer bodies are cut; else they are refused
	AsBytes  bool // not as UTF-8 text
}

// HTTPAuthorizer describes calls of a service over HTTP. Headers are exact names, "prefix*" or "*suffix".
type HTTPAuthorizer struct {
	PathPrefix string
	// Sent are headers of the request that the service gets, Added further headers.
	Sent  []string
	Added map[string]string
	// ToUpstream are headers of the service's answer that the workload gets. ToClientOnAllow and ToClientOnDeny are
	// those that the client gets.
	ToUpstream      []string
	ToClientOnAllow []string
	ToClientOnDeny  []string
}

// TLSDefaults apply to TLS outside of the mesh: servers of Gateways and Sidecars, and calls with TLS of a
// DestinationRule. Empty: Envoy's defaults.
type TLSDefaults struct {
	MinVersion   string   // "TLSv1_2"; as in Istio, of servers only
	CipherSuites []string // of TLS 1.2 and older
	ECDHCurves   []string
}

// Under returns a server's TLS with the defaults for unset fields. The server's newest version limits the default
// oldest one. d may be nil; t is unchanged.
func (d *TLSDefaults) Under(t *ServerTLS) *ServerTLS {
	if d == nil {
		return t
	}
	out := *t
	if out.MinVersion == "" {
		out.MinVersion = d.MinVersion
		if out.MaxVersion != "" {
			out.MinVersion = min(out.MinVersion, out.MaxVersion) // the names are in ascending order
		}
	}
	if len(out.CipherSuites) == 0 {
		out.CipherSuites = d.CipherSuites
	}
	out.ECDHCurves = d.ECDHCurves
	return &out
}
