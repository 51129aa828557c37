package istioapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	extensionsv1alpha1 "istio.io/client-go/pkg/apis/extensions/v1alpha1"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	networkingv1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	networkingv1beta1 "istio.io/client-go/pkg/apis/networking/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	telemetryv1 "istio.io/client-go/pkg/apis/telemetry/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// Decoder decodes objects for one cluster. It has no state; copies are free.
type Decoder struct {
	Domain           string // the cluster's: "cluster.local", which is also the default
	DefaultNamespace string // of objects that say none; empty: "default"
	PodsListed       bool   // all Pods are decoded, so that slices name none that is not there
}

func (d Decoder) domain() string {
	if d.Domain == "" {
		return "cluster.local"
	}
	return d.Domain
}

// Decoded is what became of one document.
type Decoded struct {
	Key      model.Key    // zero where kind or name are not known
	Object   model.Object // nil where the kind is not read, or where there are errors
	Partial  *Partial     // what is good of it, where there are errors; nil: nothing
	Content  []byte       // the document as JSON with sorted keys: its identity
	Problems Problems
}

// FromYAML decodes one YAML or JSON document. The object is nil where the document
// has errors, is empty, or is of a kind that the mesh has no use for.
func (d Decoder) FromYAML(doc []byte) (model.Object, Problems) {
	var n yaml.Node
	if err := yaml.Unmarshal(doc, &n); err != nil {
		return nil, Problems{{Severity: SeverityError, Message: SyntaxMessage(err)}}
	}
	out := d.FromNode(&n)
	for i := range out.Problems {
		out.Problems[i].Line = LineOf(&n, out.Problems[i].Field)
	}
	return out.Object, out.Problems
}

// SyntaxMessage is a YAML parser's error in words for a person.
func SyntaxMessage(err error) string {
	return "is not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
}

// FromNode decodes one parsed document. Lines are for LineOf to find.
func (d Decoder) FromNode(n *yaml.Node) Decoded {
	r := &report{}
	tree, err := (&treeBuilder{}).value(n, 0)
	if err != nil {
		r.errorf("", "cannot be read: %v", err)
		return Decoded{Problems: r.list}
	}
	if tree == nil {
		return Decoded{}
	}
	top, ok := tree.(map[string]any)
	if !ok {
		r.errorf("", "is not an object; a document starts with apiVersion and kind")
		return Decoded{Problems: r.list}
	}
	return d.fromTree(n, top, r)
}

func (d Decoder) fromTree(n *yaml.Node, top map[string]any, r *report) Decoded {
	kind, ok := header(r, top)
	if !ok || kind.use == useNothing {
		return Decoded{Problems: r.list}
	}
	r.object = d.keyOf(kind, top)
	if kind.use == useLater {
		r.warnf("", "%s of %s has no effect in Moonsail yet; it is ignored", kind.kind, kind.group)
		return Decoded{Problems: r.list}
	}
	out := d.checked(kind, n, top, r)
	out.Partial = d.partialNode(kind, r, out.Content, out.Problems)
	return out
}

// checked decodes a document that fits its kind.
func (d Decoder) checked(kind apiKind, n *yaml.Node, top map[string]any, r *report) Decoded {
	typed := newTyped(kind.model())
	s := goShape(reflect.TypeOf(typed))
	checker{r}.value("", n, s)
	if r.object.Kind == model.KindSecret {
		hideSecrets(r.list)
	}
	content, err := json.Marshal(top)
	if err == nil && !r.list.HasErrors() {
		err = json.Unmarshal(content, typed)
	}
	out := Decoded{Key: r.object, Content: content}
	if err != nil {
		r.errorf("", "cannot be decoded: %v", err)
	}
	if r.list.HasErrors() {
		out.Problems = r.list
		return out
	}
	typed.SetNamespace(r.object.Namespace)
	out.Object, out.Problems = d.FromTyped(typed)
	return out
}

// header reads apiVersion and kind.
func header(r *report, top map[string]any) (apiKind, bool) {
	apiVersion, _ := top["apiVersion"].(string)
	kind, _ := top["kind"].(string)
	if apiVersion == "" || kind == "" {
		missing := "apiVersion"
		if apiVersion != "" {
			missing = "kind"
		}
		r.errorf("", "has no %s; every document needs apiVersion and kind, such as networking.istio.io/v1 and VirtualService", missing)
		return apiKind{}, false
	}
	k, err := lookupKind(apiVersion, kind)
	if err != nil {
		at := path("apiVersion")
		if strings.Contains(err.Error(), "has no kind") {
			at = "kind"
		}
		r.errorf(at, "%v", err)
		return apiKind{}, false
	}
	return k, true
}

// keyOf reads the name and the namespace, which is the decoder's where none is given.
func (d Decoder) keyOf(kind apiKind, top map[string]any) model.Key {
	meta, _ := top["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	ns, _ := meta["namespace"].(string)
	switch {
	case kind.cluster:
		ns = ""
	case ns == "":
		ns = cmp.Or(d.DefaultNamespace, metav1.NamespaceDefault)
	}
	return model.Key{Kind: kind.model(), Namespace: ns, Name: name}
}

// newTyped makes an empty typed object; kind is one of readKinds.
func newTyped(kind model.Kind) metav1.Object {
	switch kind {
	case model.KindNamespace:
		return &corev1.Namespace{}
	case model.KindService:
		return &corev1.Service{}
	case model.KindPod:
		return &corev1.Pod{}
	case model.KindNode:
		return &corev1.Node{}
	case model.KindMeshConfig:
		return &corev1.ConfigMap{}
	case model.KindSecret:
		return &corev1.Secret{}
	case model.KindEndpointSlice:
		return &discoveryv1.EndpointSlice{}
	case model.KindServiceEntry:
		return &networkingv1.ServiceEntry{}
	case model.KindWorkloadEntry:
		return &networkingv1.WorkloadEntry{}
	case model.KindVirtualService:
		return &networkingv1.VirtualService{}
	case model.KindDestinationRule:
		return &networkingv1.DestinationRule{}
	case model.KindGateway:
		return &networkingv1.Gateway{}
	case model.KindKubernetesGateway:
		return &gatewayv1.Gateway{}
	case model.KindHTTPRoute:
		return &gatewayv1.HTTPRoute{}
	case model.KindGRPCRoute:
		return &gatewayv1.GRPCRoute{}
	case model.KindTLSRoute:
		return &gatewayv1.TLSRoute{}
	case model.KindTCPRoute:
		return &gatewayv1.TCPRoute{}
	case model.KindGatewayClass:
		return &gatewayv1.GatewayClass{}
	case model.KindReferenceGrant:
		return &gatewayv1.ReferenceGrant{}
	case model.KindWasmPlugin:
		return &extensionsv1alpha1.WasmPlugin{}
	case model.KindProxyConfig:
		return &networkingv1beta1.ProxyConfig{}
	case model.KindTelemetry:
		return &telemetryv1.Telemetry{}
	case model.KindEnvoyFilter:
		return &networkingv1alpha3.EnvoyFilter{}
	case model.KindPeerAuthentication:
		return &securityv1.PeerAuthentication{}
	case model.KindAuthorizationPolicy:
		return &securityv1.AuthorizationPolicy{}
	case model.KindRequestAuthentication:
		return &securityv1.RequestAuthentication{}
	}
	return &networkingv1.Sidecar{}
}

// FromTyped decodes a typed object, as informers hold them. The object is nil where
// there are errors.
func (d Decoder) FromTyped(o metav1.Object) (model.Object, Problems) {
	switch o := o.(type) {
	case *corev1.Namespace:
		return asObject(d.Namespace(o))
	case *corev1.Service:
		return asObject(d.Service(o))
	case *corev1.Pod:
		return asObject(d.Pod(o))
	case *corev1.Node:
		return asObject(d.Node(o))
	case *corev1.ConfigMap:
		return d.configMap(o)
	case *corev1.Secret:
		return asObject(d.Secret(o))
	case *discoveryv1.EndpointSlice:
		return asObject(d.EndpointSlice(o))
	case *networkingv1.ServiceEntry:
		return asObject(d.ServiceEntry(o))
	case *networkingv1.WorkloadEntry:
		return asObject(d.WorkloadEntry(o))
	case *networkingv1.VirtualService:
		return asObject(d.VirtualService(o))
	case *networkingv1.DestinationRule:
		return asObject(d.DestinationRule(o))
	case *networkingv1.Sidecar:
		return asObject(d.Sidecar(o))
	case *gatewayv1.Gateway:
		return asObject(d.KubernetesGateway(o))
	case *gatewayv1.HTTPRoute:
		return asObject(d.HTTPRoute(o))
	case *gatewayv1.GRPCRoute:
		return asObject(d.GRPCRoute(o))
	case *gatewayv1.TLSRoute:
		return asObject(d.TLSRoute(o))
	case *gatewayv1.TCPRoute:
		return asObject(d.TCPRoute(o))
	case *gatewayv1.GatewayClass:
		return nil, nil // its name, which Gateways have, says enough
	case *gatewayv1.ReferenceGrant:
		return asObject(d.ReferenceGrant(o))
	case *networkingv1.Gateway:
		return asObject(d.Gateway(o))
	case *extensionsv1alpha1.WasmPlugin:
		return asObject(d.WasmPlugin(o))
	case *networkingv1beta1.ProxyConfig:
		return asObject(d.ProxyConfig(o))
	case *telemetryv1.Telemetry:
		return asObject(d.Telemetry(o))
	case *networkingv1alpha3.EnvoyFilter:
		return asObject(d.EnvoyFilter(o))
	case *securityv1.PeerAuthentication:
		return asObject(d.PeerAuthentication(o))
	case *securityv1.AuthorizationPolicy:
		return asObject(d.AuthorizationPolicy(o))
	case *securityv1.RequestAuthentication:
		return asObject(d.RequestAuthentication(o))
	}
	return nil, Problems{{Severity: SeverityError, Message: fmt.Sprintf("%T is not a type that the mesh reads", o)}}
}

// pointer is a *T that is a model object.
type pointer[T any] interface {
	*T
	model.Object
}

// asObject drops objects that have errors, and keeps nil pointers out of interfaces.
func asObject[T any, P pointer[T]](o P, ps Problems) (model.Object, Problems) {
	if o == nil || ps.HasErrors() {
		return nil, ps
	}
	return o, ps
}
