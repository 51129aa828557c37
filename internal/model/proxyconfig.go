package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// KindProxyConfig is the kind of Istio's ProxyConfigs.
const KindProxyConfig Kind = "ProxyConfig"

// ProxyConfig is the configuration of sidecars. It applies when a Pod is injected; xDS resources do not depend on it.
type ProxyConfig struct {
	Meta
	Selector    map[string]string // empty: all workloads of its namespace, or of the mesh in the root namespace
	Concurrency *int32            // worker threads; 0: one for each core; nil: unset
	Environment map[string]string // of the sidecar
	ImageType   string            // empty: unset
}

// ProxyConfigs are all settings for a mesh's sidecars.
type ProxyConfigs struct {
	Default       string // the mesh's defaultConfig, as JSON; empty: none
	RootNamespace string
	LocalInbound  bool           // Envoy calls applications at the loopback address
	OutboundPort  uint32         // of the mesh's sidecars; 0: Istio's
	InboundPort   uint32         // of the mesh's sidecars; 0: Istio's
	List          []*ProxyConfig // the oldest first
}

// TakeMesh applies the mesh's configuration.
func (p *ProxyConfigs) TakeMesh(m *MeshConfig) {
	p.Default, p.LocalInbound = m.ProxyDefaults, m.LocalInbound != nil && *m.LocalInbound
	set(&p.OutboundPort, m.OutboundPort)
	set(&p.InboundPort, m.InboundPort)
}

// Add adds a ProxyConfig, sorted by age. It ignores other objects.
func (p *ProxyConfigs) Add(o Object) {
	if c, ok := o.(*ProxyConfig); ok {
		p.List = append(p.List, c)
		slices.SortFunc(p.List, func(a, b *ProxyConfig) int { return CompareAge(a, b) })
	}
}

// Of returns the ProxyConfigs of a workload: at most one of the root namespace and one of its own, which the Pod's
// annotation overrides, and one that selects it, which overrides the annotation, as in Istio. nil: none.
func (p *ProxyConfigs) Of(namespace string, labels map[string]string) (root, own, selecting *ProxyConfig) {
	for _, c := range p.List {
		switch {
		case c.Namespace == namespace && len(c.Selector) > 0:
			if selecting == nil && SelectorMatches(c.Selector, labels) {
				selecting = c
			}
		case len(c.Selector) > 0:
		case c.Namespace == p.RootNamespace && root == nil:
			root = c
		case c.Namespace == namespace && c.Namespace != p.RootNamespace && own == nil:
			own = c
		}
	}
	return root, own, selecting
}

// ProxyConfigFields are the fields of Istio's ProxyConfig that have an effect in the mesh's defaultConfig and the
// annotation proxy.istio.io/config; in JSON spelling, sorted.
var ProxyConfigFields = []string{
	"concurrency", "connectionSettings", "discoveryAddress", "drainDuration", "extraStatTags", "fileFlushInterval", "fileFlushMinSizeKb", "gatewayTopology",
	"holdApplicationUntilProxyStarts",
	"image", "interceptionMode", "proxyAdminPort", "proxyHeaders", "proxyMetadata", "proxyStatsMatcher", "runtimeValues", "serviceCluster",
	"statusPort", "terminationDrainDuration", "tracing",
}

// ProxyHeadersFields are the fields of proxyHeaders that have an effect. The effect of metadataExchangeHeaders, no
// identifying headers for peers outside of the mesh, always applies.
var ProxyHeadersFields = []string{
	"attemptCount", "envoyDebugHeaders", "forwardedClientCert", "metadataExchangeHeaders", "preserveHttp1HeaderCase", "requestId", "server",
	"setCurrentClientCertDetails", "xForwardedHost", "xForwardedPort",
}

// ProxyHeaders determines the headers that proxies set: Istio's proxyHeaders. It is comparable. The zero value is
// unset.
type ProxyHeaders struct {
	Set bool // else unset
	// Server is the header of that name in responses; empty: Istio's. With KeepServer they keep the application's.
	Server     string
	KeepServer bool
	// ClientCertificates is the handling of X-Forwarded-Client-Cert in requests to a sidecar's application, in Istio's
	// words; empty: APPEND_FORWARD.
	ClientCertificates string
	Details            CertificateDetails
	NoRequestIDs       bool // requests get no x-request-id
	NoAttempts         bool // requests get no x-envoy-attempt-count
	NoDebug            bool // no x-envoy-upstream-service-time and similar headers
	ForwardPort        bool // requests get x-forwarded-port
	ForwardHost        bool // requests get x-forwarded-host if a route changes the host
	KeepCase           bool // header names keep their case on HTTP/1.1
}

// CertificateDetails are the parts of the caller's certificate in X-Forwarded-Client-Cert.
type CertificateDetails struct {
	Subject, Cert, Chain, DNS, URI bool
}

// DefaultCertificateDetails are Istio's defaults.
var DefaultCertificateDetails = CertificateDetails{Subject: true, DNS: true, URI: true}

// ProxyHeadersOf decodes proxyHeaders; nil: unset. A value of a wrong type is unset.
func ProxyHeadersOf(set map[string]any) ProxyHeaders {
	if set == nil {
		return ProxyHeaders{}
	}
	flag := func(field, name string, otherwise bool) bool {
		part, _ := set[field].(map[string]any)
		if v, ok := part[name].(bool); ok {
			return v
		}
		return otherwise
	}
	const details = "setCurrentClientCertDetails"
	out := ProxyHeaders{
		Set: true, KeepServer: flag("server", "disabled", false),
		NoRequestIDs: flag("requestId", "disabled", false), NoAttempts: flag("attemptCount", "disabled", false),
		NoDebug: flag("envoyDebugHeaders", "disabled", false), ForwardPort: flag("xForwardedPort", "enabled", false),
		ForwardHost: flag("xForwardedHost", "enabled", false),
		Details: CertificateDetails{
			Subject: flag(details, "subject", true), DNS: flag(details, "dns", true), URI: flag(details, "uri", true),
			Cert: flag(details, "cert", false), Chain: flag(details, "chain", false),
		},
	}
	out.KeepCase, _ = set["preserveHttp1HeaderCase"].(bool)
	if server, ok := set["server"].(map[string]any); ok {
		out.Server, _ = server["value"].(string)
	}
	if cert, _ := set["forwardedClientCert"].(string); cert != "UNDEFINED" {
		out.ClientCertificates = cert
	}
	return out
}

// CertificateDetails returns the details that apply.
func (h ProxyHeaders) CertificateDetails() CertificateDetails {
	if !h.Set {
		return DefaultCertificateDetails
	}
	return h.Details
}

// String returns a short text that distinguishes values.
func (h ProxyHeaders) String() string {
	return fmt.Sprintf("headers=%t,%s,%s,%v,%t,%t,%t,%t,%t,%t", h.KeepServer, h.Server, h.ClientCertificates, h.Details,
		h.NoRequestIDs, h.NoAttempts, h.NoDebug, h.ForwardPort, h.ForwardHost, h.KeepCase)
}

// ProxyTracing is a proxy's own tracing setting. It replaces the mesh's defaultConfig; a Telemetry overrides it. It is
// the JSON of Istio's tracing with sorted keys, so that it is comparable. Empty: unset.
type ProxyTracing string

// TracingFields are the fields of tracing that have an effect, in JSON spelling, sorted.
var TracingFields = []string{"customTags", "enableIstioTags", "maxPathTagLength", "sampling"}

// maxProxyTracing bounds the setting, in bytes.
const maxProxyTracing = 16 << 10

// ProxyTracingOf decodes the setting; nil, or a text that is too long: unset.
func ProxyTracingOf(set map[string]any) ProxyTracing {
	if set == nil {
		return ""
	}
	set = maps.Clone(set)
	maps.DeleteFunc(set, func(field string, _ any) bool { return !slices.Contains(TracingFields, field) })
	text, err := json.Marshal(set)
	if err != nil || len(text) > maxProxyTracing {
		return ""
	}
	return ProxyTracing(text)
}

// Over returns the mesh's telemetry with the proxy's tracing. Values of wrong types, invalid percentages and tags
// without a value are ignored.
func (p ProxyTracing) Over(mesh *MeshTelemetry) *MeshTelemetry {
	if p == "" {
		return mesh
	}
	var set map[string]any
	_ = json.Unmarshal([]byte(p), &set) // cannot fail: it was encoded as JSON
	out := *mesh
	out.Sampling, out.MaxTagLength, out.Tags = 0, 0, proxyTags(set["customTags"])
	if s, _ := set["sampling"].(float64); s > 0 && s <= 100 {
		out.Sampling = s
	}
	if n, _ := set["maxPathTagLength"].(float64); n >= 1 && n <= 1<<31 {
		out.MaxTagLength = uint32(n)
	}
	istio, ok := set["enableIstioTags"].(bool)
	out.NoIstioTags = ok && !istio
	return &out
}

func proxyTags(v any) map[string]TraceTag {
	set, _ := v.(map[string]any)
	out := make(map[string]TraceTag, len(set))
	for name, v := range set {
		tag := TraceTag{
			Literal: textAt(v, "literal", "value"), Header: textAt(v, "header", "name"), Environment: textAt(v, "environment", "name"),
			Default: textAt(v, "header", "defaultValue") + textAt(v, "environment", "defaultValue"),
		}
		if name != "" && tag.Literal+tag.Header+tag.Environment != "" {
			out[name] = tag
		}
	}
	return out
}

func textAt(v any, path ...string) string {
	for _, name := range path {
		in, _ := v.(map[string]any)
		v = in[name]
	}
	text, _ := v.(string)
	return text
}
