package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/short"
)

// TestHonouredFieldsReachProxies checks that each field that the reference calls honoured changes what some proxy of a small
// mesh receives, or is listed with the reader of the field.
func TestHonouredFieldsReachProxies(t *testing.T) {
	for _, k := range fieldKinds {
		// The tests of agents and of MeshConfig cover these two.
		if k.kind == "ConfigMap" || k.kind == "ProxyConfig" {
			continue
		}
		t.Run(k.title, func(t *testing.T) {
			var lost []string
			w := surroundingsOf(t, k.title)
			for _, f := range short.Sample(k.leaves(k.message.ProtoReflect().Descriptor(), nil, nil)) {
				name := k.title + " " + strings.Join(f.at, ".")
				_, listed := readByOthers[name]
				if reaches := k.reaches(t, w, f.at, f.field); reaches == listed {
					lost = append(lost, name)
				}
			}
			require.Empty(t, lost, "no proxy receives these; or they are in readByOthers, although one does")
		})
	}
}

// leafField is a field without fields of its own.
type leafField struct {
	at    []string
	field protoreflect.FieldDescriptor
}

func (k fieldKind) leaves(m protoreflect.MessageDescriptor, at []string, above []protoreflect.FullName) (out []leafField) {
	above = append(slices.Clone(above), m.FullName())
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := f.JSONName()
		if f.IsList() {
			name += "[]"
		}
		path := append(slices.Clone(at), name)
		switch {
		case f.IsMap() || f.Kind() != protoreflect.MessageKind || scalars(f) != nil || k.hasSample(path):
			out = append(out, leafField{path, f})
		case !slices.Contains(above, f.Message().FullName()):
			out = append(out, k.leaves(f.Message(), path, above)...)
		}
	}
	return out
}

// reaches reports whether some value of a field that changes the model changes what a proxy receives. It is also true for
// a field that changes no model: the reference states why.
func (k fieldKind) reaches(t *testing.T, w *surroundings, at []string, f protoreflect.FieldDescriptor) bool {
	t.Helper()
	path, changed := strings.Join(at, "."), false
	for _, value := range k.valuesOf(t, path, f) {
		for _, doc := range k.basesOf(t, path) {
			remove(doc, at)
			before := k.decode(t, doc)
			set(doc, at, value)
			after := k.decode(t, doc)
			if e, _ := judge(before, after, path); e != honoured {
				continue
			}
			changed = changed || !isDefault(f, value)
			if w.differ(before.model, after.model) {
				return true
			}
		}
	}
	return !changed
}

const deployedWith = "The objects that `--deploy-gateways` makes have it."

// readByOthers are the honoured fields that no proxy receives, with who reads them.
var readByOthers = map[string]string{
	"Sidecar ingress[].port.name":              "It names the port for people.",
	"Sidecar egress[].port.name":               "It names the port for people.",
	"RequestAuthentication jwtRules[].timeout": "The control plane fetches the keys.",

	"Gateway of the Gateway API addresses[].value":                  deployedWith,
	"Gateway of the Gateway API infrastructure.labels":              deployedWith,
	"Gateway of the Gateway API infrastructure.annotations":         deployedWith,
	"Gateway of the Gateway API infrastructure.parametersRef.group": deployedWith,
	"Gateway of the Gateway API infrastructure.parametersRef.kind":  deployedWith,
	"Gateway of the Gateway API infrastructure.parametersRef.name":  deployedWith,
}

// surroundings are the objects beside the one that is probed, and the proxies.
type surroundings struct {
	objects []model.Object
	proxies []*model.Proxy
	known   map[compiled][]string
}

// compiled names what a proxy receives if an object is there.
type compiled struct {
	object any
	proxy  *model.Proxy
}

func surroundingsOf(t *testing.T, kind string) *surroundings {
	t.Helper()
	w := &surroundings{known: map[compiled][]string{}, proxies: probedProxies()}
	for doc := range strings.SplitSeq(besideAll+besideKind[kind], "\n---\n") {
		o, problems := config.Decoder{Domain: "cluster.local"}.FromYAML([]byte(doc))
		require.NotNil(t, o, "%s: %v", doc, problems)
		w.objects = append(w.objects, o)
	}
	w.objects = append(w.objects, &model.KeySet{
		Meta: model.Meta{Key: model.Key{Kind: model.KindKeySet, Name: "https://example.com/other"}}, Keys: `{"keys":[]}`,
	})
	return w
}

// probedProxies are sidecars with and without interception, routers by labels and by Gateway, and the streams of agents.
func probedProxies() []*model.Proxy {
	sidecar := model.Proxy{
		Type: model.ProxySidecar, Name: "a-1", Namespace: "b", IPs: []string{"10.2.0.1"}, Labels: map[string]string{"a": "b", "version": "v1"},
		ServiceAccount: "default", DNSDomain: "b.svc.cluster.local", Interception: model.InterceptRedirect, IstioVersion: "1.31.0",
		Identity: true, Modules: true, Files: true, Verified: true, DNSCapture: true, Locality: model.ParseLocality("r1/z/s"),
		NamedPorts: map[string]uint32{"http": 8080},
	}
	with := func(change func(*model.Proxy)) *model.Proxy {
		p := sidecar
		change(&p)
		return &p
	}
	router := func(labels map[string]string) *model.Proxy {
		return with(func(p *model.Proxy) {
			p.Type, p.Interception, p.NamedPorts, p.Labels = model.ProxyRouter, "", nil, labels
		})
	}
	const deployed = "gateway.networking.k8s.io/gateway-name"
	return []*model.Proxy{
		&sidecar,
		with(func(p *model.Proxy) { p.Labels = map[string]string{"k": "x"} }),
		with(func(p *model.Proxy) { p.Namespace, p.DNSDomain = "other", "other.svc.cluster.local" }),
		with(func(p *model.Proxy) { p.Namespace, p.DNSDomain = "x", "x.svc.cluster.local" }),
		with(func(p *model.Proxy) { p.Interception = model.InterceptNone }),
		router(sidecar.Labels), router(map[string]string{deployed: "a"}), router(map[string]string{deployed: "x"}),
		with(func(p *model.Proxy) { p.Names = true }), with(func(p *model.Proxy) { p.Extensions = true }),
	}
}

// differ reports whether some proxy receives something else with one object than with another.
func (w *surroundings) differ(a, b any) bool {
	return slices.ContainsFunc(w.proxies, func(p *model.Proxy) bool { return !slices.Equal(w.compile(a, p), w.compile(b, p)) })
}

// compile lists the names and versions of everything that a proxy receives.
func (w *surroundings) compile(object any, p *model.Proxy) []string {
	k := compiled{object, p}
	if out, ok := w.known[k]; ok {
		return out
	}
	objects := slices.Clone(w.objects)
	if o, ok := object.(model.Object); ok {
		objects = slices.DeleteFunc(objects, func(b model.Object) bool { return b.Metadata().Key == o.Metadata().Key })
		objects = append(objects, o)
	}
	all, failures := engine.Compile(model.DefaultMesh(), objects, p)
	out := []string{}
	for typ := range resource.NumTypes {
		for _, r := range all[typ] {
			out = append(out, typ.String(), r.Name, r.Version)
		}
	}
	for _, f := range failures {
		out = append(out, f.Error)
	}
	w.known[k] = out
	return out
}

const besideAll = `{apiVersion: v1, kind: Namespace, metadata: {name: b}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {topology.kubernetes.io/region: r2, topology.kubernetes.io/zone: z}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3, labels: {topology.kubernetes.io/region: r3, topology.kubernetes.io/zone: z}}}
---
{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {clusterIP: 10.1.0.1, selector: {a: b}, ports: [{name: http, port: 80, targetPort: 8080}, {name: tls, port: 443}, {name: tcp, port: 9000}, {name: grpc, port: 9001}, {name: tcp-7, port: 7}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: m, namespace: b}, spec: {clusterIP: 10.1.0.2, selector: {k: x}, ports: [{name: http, port: 80}, {name: tls, port: 443}, {name: tcp, port: 9000}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: x, namespace: b}, spec: {clusterIP: 10.1.0.3, selector: {k: x}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a-1, namespace: b, labels: {a: b, version: v1, security.istio.io/tlsMode: istio}}, spec: {nodeName: n1}, status: {podIP: 10.2.0.1, podIPs: [{ip: 10.2.0.1}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a-2, namespace: b, labels: {a: b, version: v1, k: x, security.istio.io/tlsMode: istio}}, spec: {nodeName: n2}, status: {podIP: 10.2.0.3, podIPs: [{ip: 10.2.0.3}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a-3, namespace: b, labels: {a: b, version: v1, security.istio.io/tlsMode: istio}}, spec: {nodeName: n3}, status: {podIP: 10.2.0.5, podIPs: [{ip: 10.2.0.5}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: m-1, namespace: b, labels: {k: x}}, status: {podIP: 10.2.0.4, podIPs: [{ip: 10.2.0.4}], conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: a, namespace: b}, spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x, namespace: b}, spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: x, namespace: b}, spec: {parentRefs: [{name: x}, {name: a}], rules: [{backendRefs: [{name: x, port: 80}]}]}}`

// besideKind are the objects that fields of one kind need.
var besideKind = map[string]string{
	"VirtualService": `
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: d, namespace: b}, spec: {http: [{route: [{destination: {host: m}}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: x, namespace: b}, spec: {selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: partner, namespace: b}, spec: {hosts: [a.example.com], ports: [{number: 443, name: tls, protocol: TLS}, {number: 7, name: tls-7, protocol: TLS}], resolution: DNS}}`,
	"DestinationRule": `
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: z, namespace: b}, spec: {hosts: [a], http: [{match: [{uri: {prefix: /v1}}], route: [{destination: {host: a, subset: v1}}]}, {route: [{destination: {host: a}}]}], tcp: [{match: [{port: 9000}], route: [{destination: {host: a, subset: v1}}]}]}}`,
	"ServiceEntry": `
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a, namespace: b}, spec: {host: a.example.com, subsets: [{name: k, labels: {k: x}}]}}`,
	"WorkloadEntry": `
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a, namespace: b}, spec: {host: a, trafficPolicy: {outlierDetection: {}}, subsets: [{name: v1, labels: {version: v1}}]}}`,
	"Sidecar": `
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: a, namespace: b}, spec: {selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}, portLevelMtls: {8443: {mode: DISABLE}}}}`,
	"EnvoyFilter": `
---
{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: z, namespace: b}, spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 2s}}}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: x, namespace: b}, spec: {selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: x, namespace: b}, spec: {hosts: ["*"], gateways: [x], http: [{route: [{destination: {host: a, port: {number: 80}}}]}]}}`,
	"Telemetry": `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, data: {mesh: '{enableTracing: true, extensionProviders: [{name: x, zipkin: {service: a.b.svc.cluster.local, port: 80}}, {name: z, zipkin: {service: m.b.svc.cluster.local, port: 80}}, {name: log, envoyFileAccessLog: {}}, {name: log2, envoyFileAccessLog: {path: /tmp/x}}], defaultProviders: {tracing: [z], accessLogging: [log], metrics: [prometheus]}}'}}`,
	"WasmPlugin": `
---
{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: b}, type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: eyJhdXRocyI6eyJleGFtcGxlLmNvbSI6eyJhdXRoIjoiWVRwaSJ9fX0=}}
---
{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: "0", namespace: b}, spec: {url: "oci://example.com/z:1"}}`,
}
