package istio

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// MeshConfigName is the name of the ConfigMap that has the mesh's configuration, in the
// root namespace, under meshConfigEntry.
const (
	MeshConfigName  = model.MeshConfigName
	meshConfigEntry = "mesh"
)

// configMap decodes one: the mesh's configuration, or certificates of CAs.
func (d Decoder) configMap(o *corev1.ConfigMap) (model.Object, Problems) {
	if o.Name == MeshConfigName {
		return asObject(d.MeshConfig(o))
	}
	for _, f := range caFields {
		if o.Data[f.ca] != "" {
			return asObject(d.Authorities(o))
		}
	}
	return nil, nil
}

// MeshConfig decodes the ConfigMap of the mesh's configuration; nil for all others. Fields
// that are not known here are let pass with a warning: they are those of newer versions.
func (d Decoder) MeshConfig(o *corev1.ConfigMap) (*model.MeshConfig, Problems) {
	text, ok := o.Data[meshConfigEntry]
	if o.Name != MeshConfigName || !ok {
		return nil, nil
	}
	c := d.start(model.KindMeshConfig, &o.ObjectMeta)
	at := path("data").f(meshConfigEntry)
	said, given, defaults := c.readMesh(at, text)
	c.unreadNetworks(o.Data["meshNetworks"])
	if c.list.HasErrors() {
		return nil, c.list
	}
	out := &model.MeshConfig{Meta: c.meta, ProxyDefaults: defaults}
	if said.OutboundTrafficPolicy != nil {
		out.Outbound = c.outboundMode(at.f("outboundTrafficPolicy").f("mode"), said.OutboundTrafficPolicy.Mode)
	}
	if p := said.InboundTrafficPolicy; p != nil {
		local := p.Mode == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST
		out.LocalInbound = &local
	}
	c.meshPorts(at, said, out)
	if given["accessLogFile"] {
		out.AccessLogFile = &said.AccessLogFile
	}
	c.meshConnections(at, said, out)
	out.DefaultRetry = (&routeConv{conv: c}).retry(at.f("defaultHttpRetryPolicy"), said.DefaultHttpRetryPolicy)
	out.Paths = pathNormalization(said.PathNormalization)
	out.Headers = proxyHeaders(said.GetDefaultConfig().GetProxyHeaders())
	out.Topology = topology(said.GetDefaultConfig().GetGatewayTopology())
	// Whether failover has outlier detection beside it is for each destination rule to say.
	out.Locality = c.localityLB(at.f("localityLbSetting"), said.LocalityLbSetting, true)
	out.Baseline = c.defaultTrafficPolicy(at.f("defaultTrafficPolicy"), said.DefaultTrafficPolicy)
	c.meshIdentity(at, said, given, out)
	out.OnlyTLS13, out.CipherSuites = c.meshMTLS(at.f("meshMTLS"), said.MeshMTLS)
	out.TLSDefaults = c.tlsDefaults(at.f("tlsDefaults"), said.TlsDefaults)
	out.Telemetry = c.meshTelemetry(at, said, given)
	out.Authorizers = c.externalAuthorizers(at.f("extensionProviders"), said.ExtensionProviders)
	out.Discovery = c.labelSelectors(at.f("discoverySelectors"), said.DiscoverySelectors)
	c.meshExports(at, said, out)
	return out, c.list
}

// meshExports converts who sees objects that do not say so.
func (c *conv) meshExports(at path, said *meshconfig.MeshConfig, out *model.MeshConfig) {
	for kind, list := range map[model.Kind][]string{
		model.KindService:         c.defaultExportTo(at.f("defaultServiceExportTo"), said.DefaultServiceExportTo),
		model.KindVirtualService:  c.defaultExportTo(at.f("defaultVirtualServiceExportTo"), said.DefaultVirtualServiceExportTo),
		model.KindDestinationRule: c.defaultExportTo(at.f("defaultDestinationRuleExportTo"), said.DefaultDestinationRuleExportTo),
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

// defaultTrafficPolicy is nil where nothing is said.
func (c *conv) defaultTrafficPolicy(at path, p *meshconfig.MeshConfig_DefaultTrafficPolicy) *model.TrafficPolicy {
	if p == nil {
		return nil
	}
	return &model.TrafficPolicy{
		ConnectionPool:   c.connectionPool(at.f("connectionPool"), p.ConnectionPool),
		OutlierDetection: c.outlierDetection(at.f("outlierDetection"), p.OutlierDetection),
	}
}

// meshPorts converts where connections are redirected to. Ports that a sidecar has for other things would leave it
// without one of the two listeners.
func (c *conv) meshPorts(at path, said *meshconfig.MeshConfig, out *model.MeshConfig) {
	base := model.DefaultMesh()
	for _, row := range []struct {
		field string
		port  int32
		into  **uint32
	}{{"proxyListenPort", said.ProxyListenPort, &out.OutboundPort}, {"proxyInboundListenPort", said.ProxyInboundListenPort, &out.InboundPort}} {
		switch port := uint32(row.port); {
		case port == 0:
		case slices.Contains(sidecarPorts, port):
			c.errorf(at.f(row.field), "%d is a port that sidecars have for something else; use another one", port)
		case c.checkPort(at.f(row.field), port):
			*row.into = &port
		}
	}
	if out.Over(base).OutboundPort == out.Over(base).InboundPort {
		c.errorf(at.f("proxyInboundListenPort"), "%d is proxyListenPort, too; use two ports", out.Over(base).InboundPort)
	}
}

// sidecarPorts are those of Istio's sidecars: Envoy's administration, debugging, tunnels, the agent's status, readiness, DNS and metrics.
var sidecarPorts = []uint32{15000, 15004, 15008, 15020, 15021, 15053, 15090}

// meshConnections converts what is said of connections of all services.
func (c *conv) meshConnections(at path, said *meshconfig.MeshConfig, out *model.MeshConfig) {
	out.ConnectTimeout = c.optionalDuration(at.f("connectTimeout"), said.ConnectTimeout)
	out.Keepalive = c.keepalive(at.f("tcpKeepalive"), said.TcpKeepalive)
	out.DNSRefresh = c.optionalDuration(at.f("dnsRefreshRate"), said.DnsRefreshRate)
	if d := said.ProtocolDetectionTimeout; d != nil && d.AsDuration() == 0 {
		out.DetectionTimeout = new(time.Duration)
	} else {
		out.DetectionTimeout = c.optionalDuration(at.f("protocolDetectionTimeout"), d)
	}
}

// pathNormalization is nil where nothing is said.
func pathNormalization(n *meshconfig.MeshConfig_ProxyPathNormalization) *model.PathNormalization {
	if n.GetNormalization() == meshconfig.MeshConfig_ProxyPathNormalization_DEFAULT {
		return nil
	}
	out := model.PathNormalization(n.GetNormalization().String())
	return &out
}

// proxyHeaders is nil where nothing is said.
func proxyHeaders(h *meshconfig.ProxyConfig_ProxyHeaders) *model.ProxyHeaders {
	if h == nil {
		return nil
	}
	var said map[string]any
	text, _ := protojson.Marshal(h) // it was decoded from JSON
	_ = json.Unmarshal(text, &said)
	out := model.ProxyHeadersOf(said)
	return &out
}

// topology is nil where nothing is said.
func topology(t *meshconfig.Topology) *model.Topology {
	if t == nil {
		return nil
	}
	out := &model.Topology{Said: true, TrustedProxies: t.NumTrustedProxies, ProxyProtocol: t.ProxyProtocol != nil}
	if t.ForwardClientCertDetails != meshconfig.ForwardClientCertDetails_UNDEFINED {
		out.ClientCertificates = t.ForwardClientCertDetails.String()
	}
	return out
}

// defaultExportTo checks a default; that of an object is resolved where its namespace is known.
func (c *conv) defaultExportTo(at path, list []string) []string {
	c.exportTo(at, list, true)
	return list
}

func (c *conv) outboundMode(at path, m meshconfig.MeshConfig_OutboundTrafficPolicy_Mode) *model.OutboundMode {
	mode := model.OutboundMode(m.String())
	if mode != model.OutboundAllowAny && mode != model.OutboundRegistryOnly {
		c.warnf(at, "%s has no effect in Moonsail yet; ALLOW_ANY is used", mode)
		mode = model.OutboundAllowAny
	}
	return &mode
}

// readMesh reads the text, and tells which fields it gives, in their JSON spelling; proxies is
// its defaultConfig.
func (c *conv) readMesh(at path, text string) (said *meshconfig.MeshConfig, given map[string]bool, proxies string) {
	said, given = &meshconfig.MeshConfig{}, map[string]bool{}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		c.errorf(at, "%s", SyntaxMessage(err))
		return said, given, ""
	}
	tree, err := (&treeBuilder{}).value(&n, 0)
	if err != nil || tree == nil {
		if err != nil {
			c.errorf(at, "cannot be read: %v", err)
		}
		return said, given, ""
	}
	s := protoShape(said.ProtoReflect().Descriptor())
	c.checkMesh(at, &n, s)
	document, err := json.Marshal(tree)
	if err == nil && !c.list.HasErrors() {
		err = json.Unmarshal(document, said)
	}
	if err != nil {
		c.errorf(at, "cannot be decoded: %v", err)
	}
	for name, value := range known(tree, s) {
		given[name] = value != nil
	}
	c.unreadMesh(at, tree, s, said)
	return said, given, proxyDefaults(tree)
}

// checkMesh compares the text with the shape of a MeshConfig.
func (c *conv) checkMesh(at path, n *yaml.Node, s *schema) {
	found := &report{object: c.object}
	checker{found}.value(at, n, s)
	for _, p := range found.list {
		if strings.HasPrefix(p.Message, unknownField) {
			p.Severity = SeverityWarning
		}
		c.list = append(c.list, p)
	}
}

var labelOperators = []string{
	string(model.LabelIn), string(model.LabelNotIn), string(model.LabelExists), string(model.LabelDoesNotExist),
}

func (c *conv) labelSelectors(at path, list []*meshconfig.LabelSelector) []model.LabelSelector {
	var out []model.LabelSelector
	for i, s := range list {
		at := at.i(i)
		c.labels(at.f("matchLabels"), s.MatchLabels)
		sel := model.LabelSelector{Labels: s.MatchLabels}
		for j, e := range s.MatchExpressions {
			sel.Expressions = append(sel.Expressions, model.LabelExpression{
				Key: e.Key, Operator: model.LabelOperator(e.Operator), Values: e.Values,
			})
			c.labelExpression(at.f("matchExpressions").i(j), &sel.Expressions[j])
		}
		out = append(out, sel)
	}
	return out
}

func (c *conv) labelExpression(at path, e *model.LabelExpression) {
	if e.Key == "" {
		c.errorf(at.f("key"), "is missing; name a label")
	}
	needsValues := e.Operator == model.LabelIn || e.Operator == model.LabelNotIn
	switch {
	case !slices.Contains(labelOperators, string(e.Operator)):
		c.errorf(at.f("operator"), "%q is not one of %s", e.Operator, strings.Join(labelOperators, ", "))
	case needsValues && len(e.Values) == 0:
		c.errorf(at.f("values"), "is missing; %s compares with at least one value", e.Operator)
	case !needsValues && len(e.Values) > 0:
		c.errorf(at.f("values"), "has no meaning for %s; remove it", e.Operator)
	}
}
