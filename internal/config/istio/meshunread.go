package istio

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
)

// readMeshFields are the fields of MeshConfig that have an effect here or in agents, beside telemetryFields; and of
// those of which only a part has one, that part.
var readMeshFields = map[string][]string{
	"accessLogFile": nil, "connectTimeout": nil, "defaultDestinationRuleExportTo": nil, "defaultHttpRetryPolicy": nil,
	"defaultTrafficPolicy":   nil,
	"defaultServiceExportTo": nil, "defaultVirtualServiceExportTo": nil, "discoverySelectors": nil, "dnsRefreshRate": nil,
	"enableAutoMtls": nil, "extensionProviders": nil, "h2UpgradePolicy": nil, "inboundTrafficPolicy": nil, "localityLbSetting": nil, "meshMTLS": nil,
	"outboundTrafficPolicy": {"mode"}, "pathNormalization": nil, "protocolDetectionTimeout": nil, "proxyInboundListenPort": nil, "proxyListenPort": nil, "tcpKeepalive": nil,
	"tlsDefaults": nil, "trustDomain": nil, "trustDomainAliases": nil, "defaultConfig": model.ProxyConfigFields,
}

// readTracing are the fields of defaultConfig.tracing that have an effect.
var readTracing = []string{"customTags", "enableIstioTags", "maxPathTagLength", "sampling", "zipkin"}

// asItIs tells of fields that are not read whether they say what holds anyway.
var asItIs = map[string]func(said *meshconfig.MeshConfig, namespace string) bool{
	"rootNamespace": func(m *meshconfig.MeshConfig, ns string) bool { return m.RootNamespace == ns },
	"ingressControllerMode": func(m *meshconfig.MeshConfig, _ string) bool {
		return m.IngressControllerMode == meshconfig.MeshConfig_OFF
	},
	"enableEnvoyAccessLogService": func(m *meshconfig.MeshConfig, _ string) bool { return !m.EnableEnvoyAccessLogService },
	"disableEnvoyListenerLog":     func(m *meshconfig.MeshConfig, _ string) bool { return !m.DisableEnvoyListenerLog },
	"verifyCertificateAtClient":   func(m *meshconfig.MeshConfig, _ string) bool { return m.VerifyCertificateAtClient.GetValue() }, //nolint:staticcheck // still in use
	// Settings for calls to other clusters, of which there are none.
	"serviceSettings": func(*meshconfig.MeshConfig, string) bool { return true },
}

// insteadOf says what to do about fields that are not read.
var insteadOf = map[string]string{
	"rootNamespace":               "the root namespace is told by --root-namespace",
	"ingressClass":                noIngress,
	"ingressControllerMode":       noIngress,
	"ingressSelector":             noIngress,
	"ingressService":              noIngress,
	"enableEnvoyAccessLogService": "name a provider of kind envoyHttpAls in defaultProviders.accessLogging",
	"zoneAwareLbSetting":          "use localityLbSetting",
	"caCertificates":              "give the CA's roots with its certificate, in the Secret cacerts",
}

const noIngress = "Kubernetes' Ingress is not served; use a Gateway"

// unreadMesh warns of each field that says something that does nothing here.
func (c *conv) unreadMesh(at path, tree any, s *schema, said *meshconfig.MeshConfig) {
	given := known(tree, s)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		part, read := readMeshFields[name]
		same := asItIs[name]
		switch {
		case read && part != nil:
			c.unreadPart(at.f(name), given[name], s.fields[name].shape(), part, readTracing)
		case read, slices.Contains(telemetryFields, name), given[name] == nil:
		case same != nil && same(said, c.meta.Namespace):
		default:
			c.unread(at.f(name), insteadOf[name])
		}
	}
}

// known are the fields of an object that exist, in their JSON spelling.
func known(tree any, s *schema) map[string]any {
	out := map[string]any{}
	top, _ := tree.(map[string]any)
	for k, value := range top {
		if f := s.fields[k]; f != nil {
			out[f.name] = value
		}
	}
	return out
}

// unreadPart warns likewise of a part, of which read has an effect, and of its tracing inTracing.
func (c *conv) unreadPart(at path, tree any, s *schema, read, inTracing []string) {
	fields := known(tree, s)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case fields[name] == nil:
		case !slices.Contains(read, name):
			c.unread(at.f(name), "")
		case name == "tracing":
			c.unreadPart(at.f(name), fields[name], s.fields[name].shape(), inTracing, nil)
		case name == "proxyHeaders":
			c.unreadPart(at.f(name), fields[name], s.fields[name].shape(), model.ProxyHeadersFields, nil)
		}
	}
}

// unreadNetworks warns of gateways between networks, which installers write beside the mesh's configuration; "networks:
// {}" says that there are none.
func (c *conv) unreadNetworks(text string) {
	var said struct {
		Networks map[string]any `yaml:"networks"`
	}
	if err := yaml.Unmarshal([]byte(text), &said); err != nil || len(said.Networks) > 0 {
		c.unread(path("data").f("meshNetworks"), "endpoints of all networks are called at their own addresses")
	}
}

func (c *conv) unread(at path, instead string) {
	if instead != "" {
		instead = "; " + instead
	}
	c.warnf(at, "has no effect in Moonsail yet%s", instead)
}
