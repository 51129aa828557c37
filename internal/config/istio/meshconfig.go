package istio

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// meshConfigEntry is the key of the mesh's configuration in its ConfigMap.
const meshConfigEntry = "mesh"

// MeshConfig decodes the ConfigMap of the mesh's configuration; nil for all others. The result is named
// model.MeshConfigName, whatever the ConfigMap is called. Unknown
// fields are those of newer versions, and get a warning.
func MeshConfig(in convert.Cluster, o *corev1.ConfigMap) (*model.MeshConfig, problem.List) {
	text, ok := o.Data[meshConfigEntry]
	if o.Name != in.MeshConfigName || !ok {
		return nil, nil
	}
	c := meshConv{convert.Start(in, model.KindMeshConfig, &o.ObjectMeta)}
	at := problem.Path("data").Field(meshConfigEntry)
	settings, given, defaults := c.readMesh(at, text)
	c.unreadNetworks(o.Data["meshNetworks"])
	if c.Problems.HasErrors() {
		return nil, c.Problems
	}
	out := &model.MeshConfig{Meta: c.Meta, ProxyDefaults: defaults}
	out.Key.Name = model.MeshConfigName
	if settings.OutboundTrafficPolicy != nil {
		out.Outbound = c.outboundMode(at.Field("outboundTrafficPolicy").Field("mode"), settings.OutboundTrafficPolicy.Mode)
	}
	if p := settings.InboundTrafficPolicy; p != nil {
		local := p.Mode == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST
		out.LocalInbound = &local
	}
	out.Ingress = ingressSettings(settings, given)
	c.meshPorts(at, settings, out)
	if given["accessLogFile"] {
		out.AccessLogFile = &settings.AccessLogFile
	}
	c.meshConnections(at, settings, out)
	out.DefaultRetry = (&routeConv{Converter: c.Converter}).retry(at.Field("defaultHttpRetryPolicy"), settings.DefaultHttpRetryPolicy)
	out.Paths = pathNormalization(settings.PathNormalization)
	out.Headers = proxyHeaders(settings.GetDefaultConfig().GetProxyHeaders())
	out.Topology = topology(settings.GetDefaultConfig().GetGatewayTopology())
	out.Connections = c.connectionSettings(at.Field("defaultConfig").Field("connectionSettings"), settings.GetDefaultConfig().GetConnectionSettings())
	// Each destination rule decides whether outlier detection accompanies failover.
	out.Locality = destinationConv(c).localityLB(at.Field("localityLbSetting"), settings.LocalityLbSetting, true)
	out.Baseline = c.defaultTrafficPolicy(at.Field("defaultTrafficPolicy"), settings.DefaultTrafficPolicy)
	c.meshIdentity(at, settings, given, out)
	out.OnlyTLS13, out.CipherSuites = c.meshMTLS(at.Field("meshMTLS"), settings.MeshMTLS)
	out.TLSDefaults = c.tlsDefaults(at.Field("tlsDefaults"), settings.TlsDefaults)
	out.Telemetry = telemetryConv(c).meshTelemetry(at, settings, given)
	out.Authorizers = providerConv(c).externalAuthorizers(at.Field("extensionProviders"), settings.ExtensionProviders)
	out.Discovery = c.labelSelectors(at.Field("discoverySelectors"), settings.DiscoverySelectors)
	c.meshExports(at, settings, out)
	return out, c.Problems
}

// ingressSettings returns nil if no field is given.
func ingressSettings(m *meshconfig.MeshConfig, given map[string]bool) *model.IngressSettings {
	if !given["ingressClass"] && !given["ingressControllerMode"] && !given["ingressSelector"] && !given["ingressService"] {
		return nil
	}
	out := model.DefaultIngress()
	switch m.IngressControllerMode {
	case meshconfig.MeshConfig_OFF:
		out.Mode = model.IngressOff
	case meshconfig.MeshConfig_DEFAULT:
		out.Mode = model.IngressDefault
	}
	if given["ingressClass"] {
		out.Class = m.IngressClass
	}
	if given["ingressService"] {
		out.Service = m.IngressService
	}
	out.Selector = m.IngressSelector
	return &out
}

// meshExports converts the default visibility of objects without exportTo.
func (c meshConv) meshExports(at problem.Path, settings *meshconfig.MeshConfig, out *model.MeshConfig) {
	for kind, list := range map[model.Kind][]string{
		model.KindService:         c.defaultExportTo(at.Field("defaultServiceExportTo"), settings.DefaultServiceExportTo),
		model.KindVirtualService:  c.defaultExportTo(at.Field("defaultVirtualServiceExportTo"), settings.DefaultVirtualServiceExportTo),
		model.KindDestinationRule: c.defaultExportTo(at.Field("defaultDestinationRuleExportTo"), settings.DefaultDestinationRuleExportTo),
	} {
		if len(list) == 0 {
			continue
		}
		if out.ExportTo == nil {
			out.ExportTo = map[model.Kind][]string{}
		}
		out.ExportTo[kind] = list
	}
}

// defaultTrafficPolicy is nil where nothing is settings.
func (c meshConv) defaultTrafficPolicy(at problem.Path, p *meshconfig.MeshConfig_DefaultTrafficPolicy) *model.TrafficPolicy {
	if p == nil {
		return nil
	}
	return &model.TrafficPolicy{
		ConnectionPool:   destinationConv(c).connectionPool(at.Field("connectionPool"), p.ConnectionPool),
		OutlierDetection: destinationConv(c).outlierDetection(at.Field("outlierDetection"), p.OutlierDetection),
	}
}

// meshPorts converts where connections are redirected to. Ports that a sidecar has for other things would leave it
// without one of the two listeners.
func (c meshConv) meshPorts(at problem.Path, settings *meshconfig.MeshConfig, out *model.MeshConfig) {
	base := model.DefaultMesh()
	for _, row := range []struct {
		field string
		port  int32
		into  **uint32
	}{{"proxyListenPort", settings.ProxyListenPort, &out.OutboundPort}, {"proxyInboundListenPort", settings.ProxyInboundListenPort, &out.InboundPort}} {
		switch port := uint32(row.port); {
		case port == 0:
		case slices.Contains(sidecarPorts, port):
			c.Errorf(code.InvalidNumber, at.Field(row.field), "%d is a port that sidecars use for another purpose; use another one", port)
		case c.CheckPort(at.Field(row.field), port):
			*row.into = &port
		}
	}
	if out.Over(base).OutboundPort == out.Over(base).InboundPort {
		c.Errorf(code.ListedTwice, at.Field("proxyInboundListenPort"), "%d is proxyListenPort, too; use two ports", out.Over(base).InboundPort)
	}
}

// sidecarPorts are those of Istio's sidecars: Envoy's administration, debugging, tunnels, the agent's status, readiness, DNS and metrics.
var sidecarPorts = []uint32{15000, 15004, 15008, 15020, 15021, 15053, 15090}

// meshConnections converts what is settings of connections of all services.
func (c meshConv) meshConnections(at problem.Path, settings *meshconfig.MeshConfig, out *model.MeshConfig) {
	out.ConnectTimeout = c.OptionalDuration(at.Field("connectTimeout"), settings.ConnectTimeout)
	out.Keepalive = destinationConv(c).keepalive(at.Field("tcpKeepalive"), settings.TcpKeepalive)
	out.DNSRefresh = c.OptionalDuration(at.Field("dnsRefreshRate"), settings.DnsRefreshRate)
	if d := settings.ProtocolDetectionTimeout; d != nil && d.AsDuration() == 0 {
		out.DetectionTimeout = new(time.Duration)
	} else {
		out.DetectionTimeout = c.OptionalDuration(at.Field("protocolDetectionTimeout"), d)
	}
}

// pathNormalization is nil where nothing is settings.
func pathNormalization(n *meshconfig.MeshConfig_ProxyPathNormalization) *model.PathNormalization {
	if n.GetNormalization() == meshconfig.MeshConfig_ProxyPathNormalization_DEFAULT {
		return nil
	}
	out := model.PathNormalization(n.GetNormalization().String())
	return &out
}

// proxyHeaders is nil where nothing is settings.
func proxyHeaders(h *meshconfig.ProxyConfig_ProxyHeaders) *model.ProxyHeaders {
	if h == nil {
		return nil
	}
	var settings map[string]any
	text, _ := protojson.Marshal(h) // it was decoded from JSON
	_ = json.Unmarshal(text, &settings)
	out := model.ProxyHeadersOf(settings)
	return &out
}

// topology is nil where nothing is settings.
func topology(t *meshconfig.Topology) *model.Topology {
	if t == nil {
		return nil
	}
	out := &model.Topology{Set: true, TrustedProxies: t.NumTrustedProxies, ProxyProtocol: t.ProxyProtocol != nil}
	if t.ForwardClientCertDetails != meshconfig.ForwardClientCertDetails_UNDEFINED {
		out.ClientCertificates = t.ForwardClientCertDetails.String()
	}
	return out
}

// defaultExportTo checks a default; that of an object is resolved where its namespace is known.
func (c meshConv) defaultExportTo(at problem.Path, list []string) []string {
	c.ExportTo(at, list, true)
	return list
}

func (c meshConv) outboundMode(at problem.Path, m meshconfig.MeshConfig_OutboundTrafficPolicy_Mode) *model.OutboundMode {
	mode := model.OutboundMode(m.String())
	if mode != model.OutboundAllowAny && mode != model.OutboundRegistryOnly {
		c.Warnf(code.NotSupported, at, "%s has no effect in Moonsail yet: unknown hosts are not resolved, and requests go to the address that the application called, as with ALLOW_ANY; write ServiceEntries with resolution DYNAMIC_DNS", mode)
		mode = model.OutboundAllowAny
	}
	return &mode
}

// readMesh reads the text, and returns the fields that it sets, in their JSON spelling; proxies is its defaultConfig.
func (c meshConv) readMesh(at problem.Path, text string) (settings *meshconfig.MeshConfig, given map[string]bool, proxies string) {
	settings, given = &meshconfig.MeshConfig{}, map[string]bool{}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		c.Errorf(code.InvalidYAML, at, "%s", schema.TextMessage(err))
		return settings, given, ""
	}
	tree, err := schema.Tree(&n)
	if err != nil || tree == nil {
		if err != nil {
			c.Errorf(code.Unreadable, at, "cannot be read: %v", err)
		}
		return settings, given, ""
	}
	s := schema.OfMessage(settings.ProtoReflect().Descriptor())
	c.checkMesh(at, &n, s)
	document, err := json.Marshal(tree)
	if err == nil && !c.Problems.HasErrors() {
		err = json.Unmarshal(document, settings)
	}
	if err != nil {
		c.Errorf(code.Unreadable, at, "cannot be decoded: %v", err)
	}
	for name, value := range s.Known(tree) {
		given[name] = value != nil
	}
	c.unreadMesh(at, tree, s, settings)
	return settings, given, proxyDefaults(tree)
}

// checkMesh compares the text with the shape of a MeshConfig.
func (c meshConv) checkMesh(at problem.Path, n *yaml.Node, s *schema.Schema) {
	found := &problem.Report{Object: c.Object}
	schema.Check(found, at, n, s)
	for _, p := range found.Problems {
		if strings.HasPrefix(p.Message, schema.UnknownField) {
			p.Severity = problem.SeverityWarning
		}
		c.Problems = append(c.Problems, p)
	}
}

func (c meshConv) labelSelectors(at problem.Path, list []*meshconfig.LabelSelector) []model.LabelSelector {
	var out []model.LabelSelector
	for i, s := range list {
		at := at.Index(i)
		c.Labels(at.Field("matchLabels"), s.MatchLabels)
		sel := model.LabelSelector{Labels: s.MatchLabels}
		for j, e := range s.MatchExpressions {
			sel.Expressions = append(sel.Expressions, model.LabelExpression{
				Key: e.Key, Operator: model.LabelOperator(e.Operator), Values: e.Values,
			})
			c.LabelExpression(at.Field("matchExpressions").Index(j), &sel.Expressions[j])
		}
		out = append(out, sel)
	}
	return out
}

// readMeshFields are the fields of MeshConfig that have an effect here or in agents, beside telemetryFields. The values
// are the parts with an effect; nil: all.
var readMeshFields = map[string][]string{
	"accessLogFile": nil, "connectTimeout": nil, "defaultDestinationRuleExportTo": nil, "defaultHttpRetryPolicy": nil,
	"defaultTrafficPolicy":   nil,
	"defaultServiceExportTo": nil, "defaultVirtualServiceExportTo": nil, "discoverySelectors": nil, "dnsRefreshRate": nil,
	"enableAutoMtls": nil, "extensionProviders": nil, "ingressClass": nil, "ingressControllerMode": nil, "ingressSelector": nil, "ingressService": nil, "h2UpgradePolicy": nil, "inboundTrafficPolicy": nil, "localityLbSetting": nil, "meshMTLS": nil,
	"outboundTrafficPolicy": {"mode"}, "pathNormalization": nil, "protocolDetectionTimeout": nil, "proxyInboundListenPort": nil, "proxyListenPort": nil, "tcpKeepalive": nil,
	"tlsDefaults": nil, "trustDomain": nil, "trustDomainAliases": nil, "defaultConfig": model.ProxyConfigFields,
}

// readTracing are the fields of defaultConfig.tracing that have an effect.
var readTracing = []string{"customTags", "enableIstioTags", "maxPathTagLength", "sampling", "zipkin"}

// asItIs reports, for fields that are not read, whether their value describes what the mesh does anyway.
var asItIs = map[string]func(settings *meshconfig.MeshConfig, namespace string) bool{
	"rootNamespace":               func(m *meshconfig.MeshConfig, ns string) bool { return m.RootNamespace == ns },
	"enableEnvoyAccessLogService": func(m *meshconfig.MeshConfig, _ string) bool { return !m.EnableEnvoyAccessLogService },
	"disableEnvoyListenerLog":     func(m *meshconfig.MeshConfig, _ string) bool { return !m.DisableEnvoyListenerLog },
	"verifyCertificateAtClient":   func(m *meshconfig.MeshConfig, _ string) bool { return m.VerifyCertificateAtClient.GetValue() }, //nolint:staticcheck // still in use
	// Settings for calls to other clusters, which do not exist.
	"serviceSettings": func(*meshconfig.MeshConfig, string) bool { return true },
}

// insteadOf is the advice for fields that are not read.
var insteadOf = map[string]string{
	"rootNamespace":                        "set the root namespace with --root-namespace",
	"enableEnvoyAccessLogService":          "name a provider of kind envoyHttpAls in defaultProviders.accessLogging",
	"zoneAwareLbSetting":                   "Envoy needs all endpoints of the caller's own service for it, which sidecars do not get; use localityLbSetting",
	"clusterPerConnectionBufferLimitBytes": "istiod 1.31 does not apply it, either",
	"listenerConnectionLimit":              "istiod 1.31 does not apply it, either",
	"caCertificates":                       "put the CA's roots beside its certificate, in the Secret cacerts",
}

// unreadMesh warns of each field whose value has no effect here.
func (c meshConv) unreadMesh(at problem.Path, tree any, s *schema.Schema, settings *meshconfig.MeshConfig) {
	given := s.Known(tree)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		part, read := readMeshFields[name]
		same := asItIs[name]
		switch {
		case read && part != nil:
			c.unreadPart(at.Field(name), given[name], s.Field(name), part, readTracing)
		case read, slices.Contains(telemetryFields, name), given[name] == nil:
		case same != nil && same(settings, c.Meta.Namespace):
		default:
			c.unread(at.Field(name), insteadOf[name])
		}
	}
}

// unreadPart warns of fields of a part that have no effect: all but read, and in its tracing all but inTracing.
func (c meshConv) unreadPart(at problem.Path, tree any, s *schema.Schema, read, inTracing []string) {
	fields := s.Known(tree)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case fields[name] == nil:
		case !slices.Contains(read, name):
			c.unread(at.Field(name), insteadOf[name])
		case name == "tracing":
			c.unreadPart(at.Field(name), fields[name], s.Field(name), inTracing, nil)
		case name == "proxyHeaders":
			c.unreadPart(at.Field(name), fields[name], s.Field(name), model.ProxyHeadersFields, nil)
		case name == "connectionSettings":
			c.unreadPart(at.Field(name), fields[name], s.Field(name), model.ConnectionSettingsFields, nil)
		}
	}
}

// unreadNetworks warns of gateways between networks, which installers write beside the mesh's configuration; "networks:
// {}" means none.
func (c meshConv) unreadNetworks(text string) {
	var settings struct {
		Networks map[string]any `yaml:"networks"`
	}
	if err := yaml.Unmarshal([]byte(text), &settings); err != nil || len(settings.Networks) > 0 {
		c.unread(problem.Path("data").Field("meshNetworks"), "endpoints of all networks are called at their own addresses")
	}
}

func (c meshConv) unread(at problem.Path, instead string) {
	if instead != "" {
		instead = "; " + instead
	}
	c.Warnf(code.NotSupported, at, "has no effect in Moonsail yet%s", instead)
}
