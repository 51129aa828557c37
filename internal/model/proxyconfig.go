package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// KindProxyConfig is Istio's kind of that name.
const KindProxyConfig Kind = "ProxyConfig"

// ProxyConfig says how sidecars are run. It counts when a Pod gets its sidecar: no resource of
// xDS depends on it.
type ProxyConfig struct {
	Meta
	Selector    map[string]string // empty: all of its namespace or, in the root namespace, of the mesh
	Concurrency *int32            // worker threads; 0: one a core; nil: nothing is said
	Environment map[string]string // of the sidecar
	ImageType   string            // empty: nothing is said
}

// ProxyConfigs are what is said of a mesh's sidecars.
type ProxyConfigs struct {
	Default       string // the mesh's defaultConfig, as JSON; empty: there is none
	RootNamespace string
	LocalInbound  bool           // applications listen at the loopback address
	OutboundPort  uint32         // of the mesh's sidecars; 0: Istio's
	InboundPort   uint32         // likewise
	List          []*ProxyConfig // the oldest first
}

// TakeMesh takes what the mesh's configuration says.
func (p *ProxyConfigs) TakeMesh(m *MeshConfig) {
	p.Default, p.LocalInbound = m.ProxyDefaults, m.LocalInbound != nil && *m.LocalInbound
	set(&p.OutboundPort, m.OutboundPort)
	set(&p.InboundPort, m.InboundPort)
}

// Add takes an object, if it is a ProxyConfig, in its place.
func (p *ProxyConfigs) Add(o Object) {
	if c, ok := o.(*ProxyConfig); ok {
		p.List = append(p.List, c)
		slices.SortFunc(p.List, func(a, b *ProxyConfig) int { return CompareAge(a, b) })
	}
}

// Of are those for a workload: at most one of the root namespace and one of its own, under its
// annotation; and one that selects it, over that, as in Istio. nil: there is none.
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

// ProxyConfigFields are the fields of Istio's ProxyConfig, as the mesh's defaultConfig and the annotation
// proxy.istio.io/config have it, that have an effect; in their JSON spelling, sorted.
var ProxyConfigFields = []string{
	"concurrency", "discoveryAddress", "drainDuration", "extraStatTags", "fileFlushInterval", "fileFlushMinSizeKb", "gatewayTopology",
	"holdApplicationUntilProxyStarts",
	"image", "interceptionMode", "proxyAdminPort", "proxyHeaders", "proxyMetadata", "proxyStatsMatcher", "runtimeValues", "serviceCluster",
	"statusPort", "terminationDrainDuration", "tracing",
}

// ProxyHeadersFields are likewise those of its proxyHeaders. That no peer outside of the mesh is told who calls
// (metadataExchangeHeaders) holds anyway.
var ProxyHeadersFields = []string{
	"attemptCount", "envoyDebugHeaders", "forwardedClientCert", "metadataExchangeHeaders", "preserveHttp1HeaderCase", "requestId", "server",
	"setCurrentClientCertDetails", "xForwardedHost", "xForwardedPort",
}

// ProxyHeaders are which headers proxies set: Istio's proxyHeaders. It is comparable; zero is what holds where
// nothing is said.
type ProxyHeaders struct {
	Said bool // else nothing is said
	// ServerSaid: responses have Server as their header, or with KeepServer what the application says.
	ServerSaid, KeepServer bool
	Server                 string // empty: Istio's
	// ClientCertificates is what becomes of X-Forwarded-Client-Cert in requests to a sidecar's application, in
	// Istio's words; empty: APPEND_FORWARD.
	ClientCertificates string
	Details            CertificateDetails
	NoRequestIDs       bool // requests get no x-request-id
	NoAttempts         bool // nor x-envoy-attempt-count
	NoDebug            bool // nothing of x-envoy-upstream-service-time and the like
	ForwardPort        bool // requests get x-forwarded-port
	ForwardHost        bool // and x-forwarded-host, where a route gives them another host
	KeepCase           bool // names of headers stay as they are written, on HTTP/1.1
}

// CertificateDetails are what X-Forwarded-Client-Cert says of the caller's certificate.
type CertificateDetails struct {
	Subject, Cert, Chain, DNS, URI bool
}

// DefaultCertificateDetails are Istio's.
var DefaultCertificateDetails = CertificateDetails{Subject: true, DNS: true, URI: true}

// ProxyHeadersOf reads proxyHeaders in JSON's form; nil: nothing is said. What is of another type than it should
// be counts as not said.
func ProxyHeadersOf(said map[string]any) ProxyHeaders {
	if said == nil {
		return ProxyHeaders{}
	}
	flag := func(field, name string, otherwise bool) bool {
		part, _ := said[field].(map[string]any)
		if v, ok := part[name].(bool); ok {
			return v
		}
		return otherwise
	}
	const details = "setCurrentClientCertDetails"
	out := ProxyHeaders{
		Said: true, KeepServer: flag("server", "disabled", false),
		NoRequestIDs: flag("requestId", "disabled", false), NoAttempts: flag("attemptCount", "disabled", false),
		NoDebug: flag("envoyDebugHeaders", "disabled", false), ForwardPort: flag("xForwardedPort", "enabled", false),
		ForwardHost: flag("xForwardedHost", "enabled", false),
		Details: CertificateDetails{
			Subject: flag(details, "subject", true), DNS: flag(details, "dns", true), URI: flag(details, "uri", true),
			Cert: flag(details, "cert", false), Chain: flag(details, "chain", false),
		},
	}
	out.KeepCase, _ = said["preserveHttp1HeaderCase"].(bool)
	if server, ok := said["server"].(map[string]any); ok {
		out.ServerSaid = true
		out.Server, _ = server["value"].(string)
	}
	if cert, _ := said["forwardedClientCert"].(string); cert != "UNDEFINED" {
		out.ClientCertificates = cert
	}
	return out
}

// CertificateDetails are those that hold.
func (h ProxyHeaders) CertificateDetails() CertificateDetails {
	if !h.Said {
		return DefaultCertificateDetails
	}
	return h.Details
}

// String is short, and tells them apart.
func (h ProxyHeaders) String() string {
	return fmt.Sprintf("headers=%t,%t,%s,%s,%v,%t,%t,%t,%t,%t,%t", h.ServerSaid, h.KeepServer, h.Server, h.ClientCertificates, h.Details,
		h.NoRequestIDs, h.NoAttempts, h.NoDebug, h.ForwardPort, h.ForwardHost, h.KeepCase)
}

// ProxyTracing is what a proxy says of its traces itself, in place of all that the mesh's defaultConfig says of
// them; a Telemetry goes before it. It is the JSON of Istio's tracing, keys in order, so that it is comparable. Empty:
// nothing is said.
type ProxyTracing string

// TracingFields are those of its fields that have an effect, in their JSON spelling, sorted.
var TracingFields = []string{"customTags", "enableIstioTags", "maxPathTagLength", "sampling"}

// maxProxyTracing bounds what a proxy may say, in bytes.
const maxProxyTracing = 16 << 10

// ProxyTracingOf reads it in JSON's form; nil, or what is too long: nothing is said.
func ProxyTracingOf(said map[string]any) ProxyTracing {
	if said == nil {
		return ""
	}
	said = maps.Clone(said)
	maps.DeleteFunc(said, func(field string, _ any) bool { return !slices.Contains(TracingFields, field) })
	text, err := json.Marshal(said)
	if err != nil || len(text) > maxProxyTracing {
		return ""
	}
	return ProxyTracing(text)
}

// Over is the mesh's telemetry with the proxy's own traces. What is of another type than it should be, or no
// percentage, counts as not said, and so does a tag without a value.
func (p ProxyTracing) Over(mesh *MeshTelemetry) *MeshTelemetry {
	if p == "" {
		return mesh
	}
	var said map[string]any
	_ = json.Unmarshal([]byte(p), &said) // it was made from JSON
	out := *mesh
	out.Sampling, out.MaxTagLength, out.Tags = DefaultMeshTelemetry().Sampling, 0, proxyTags(said["customTags"])
	if s, _ := said["sampling"].(float64); s > 0 && s <= 100 {
		out.Sampling = s
	}
	if n, _ := said["maxPathTagLength"].(float64); n >= 1 && n <= 1<<31 {
		out.MaxTagLength = uint32(n)
	}
	istio, ok := said["enableIstioTags"].(bool)
	out.NoIstioTags = ok && !istio
	return &out
}

func proxyTags(v any) map[string]TraceTag {
	said, _ := v.(map[string]any)
	out := make(map[string]TraceTag, len(said))
	for name, v := range said {
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
