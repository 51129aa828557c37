package config

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// typedKind is how objects of a kind are decoded, once they are of their Go type.
type typedKind struct {
	empty  func() metav1.Object
	decode func(convert.Cluster, metav1.Object) (model.Object, problem.List)
}

// typedKinds has a row for each kind that the mesh reads.
var typedKinds = map[model.Kind]typedKind{
	model.KindNamespace:     typed(kube.Namespace),
	model.KindService:       typed(kube.Service),
	model.KindPod:           typed(kube.Pod),
	model.KindNode:          typed(kube.Node),
	model.KindMeshConfig:    {empty[corev1.ConfigMap], configMap},
	model.KindSecret:        typed(kube.Secret),
	model.KindEndpointSlice: typed(kube.EndpointSlice),

	model.KindIngress:      typed(kube.Ingress),
	model.KindIngressClass: typed(kube.IngressClass),

	model.KindServiceEntry:          typed(istio.ServiceEntry),
	model.KindWorkloadEntry:         typed(istio.WorkloadEntry),
	model.KindVirtualService:        typed(istio.VirtualService),
	model.KindDestinationRule:       typed(istio.DestinationRule),
	model.KindGateway:               typed(istio.Gateway),
	model.KindSidecar:               typed(istio.Sidecar),
	model.KindWasmPlugin:            typed(istio.WasmPlugin),
	model.KindProxyConfig:           typed(istio.ProxyConfig),
	model.KindTelemetry:             typed(istio.Telemetry),
	model.KindEnvoyFilter:           typed(istio.EnvoyFilter),
	model.KindPeerAuthentication:    typed(istio.PeerAuthentication),
	model.KindAuthorizationPolicy:   typed(istio.AuthorizationPolicy),
	model.KindRequestAuthentication: typed(istio.RequestAuthentication),

	model.KindKubernetesGateway: typed(gatewayapi.Gateway),
	model.KindListenerSet:       typed(gatewayapi.ListenerSet),
	model.KindHTTPRoute:         typed(gatewayapi.HTTPRoute),
	model.KindGRPCRoute:         typed(gatewayapi.GRPCRoute),
	model.KindTLSRoute:          typed(gatewayapi.TLSRoute),
	model.KindTCPRoute:          typed(gatewayapi.TCPRoute),
	model.KindReferenceGrant:    typed(gatewayapi.ReferenceGrant),
	model.KindBackendTLSPolicy:  typed(gatewayapi.BackendTLSPolicy),
	// Gateways use only its name.
	model.KindGatewayClass: {empty[gatewayv1.GatewayClass], func(_ convert.Cluster, o metav1.Object) (model.Object, problem.List) {
		class, _ := o.(*gatewayv1.GatewayClass)
		return nil, gatewayapi.GatewayClass(class)
	}},
}

// typedRows are the same by their Go types.
var typedRows = rowsByType()

func rowsByType() map[reflect.Type]typedKind {
	out := map[reflect.Type]typedKind{}
	for _, row := range typedKinds {
		out[reflect.TypeOf(row.empty())] = row
	}
	return out
}

// source is a *T that is an object of an API.
type source[T any] interface {
	*T
	metav1.Object
}

func empty[T any, P source[T]]() metav1.Object { return P(new(T)) }

// typed is the row of a kind whose objects become one object of the model each.
func typed[T, M any, P source[T], O pointer[M]](decode func(convert.Cluster, P) (O, problem.List)) typedKind {
	return typedKind{empty[T, P], func(in convert.Cluster, o metav1.Object) (model.Object, problem.List) {
		return asObject[M](decode(in, o.(P)))
	}}
}

// newTyped makes an empty typed object; kind is one of readKinds.
func newTyped(kind model.Kind) metav1.Object { return typedKinds[kind].empty() }

// FromTyped decodes a typed object, as informers hold them. The object is nil where
// there are errors.
func (d Decoder) FromTyped(o metav1.Object) (model.Object, problem.List) {
	object, problems := d.converted(o)
	if problems.HasErrors() {
		return nil, problems
	}
	return object, problems
}

// converted decodes a typed object. One with errors is incomplete.
func (d Decoder) converted(o metav1.Object) (model.Object, problem.List) {
	row, ok := typedRows[reflect.TypeOf(o)]
	if !ok {
		return nil, problem.List{{Severity: problem.SeverityError, Code: code.Unreadable, Message: fmt.Sprintf("%T is not a type that the mesh reads", o)}}
	}
	return row.decode(d.cluster(), o)
}

// pointer is a *T that is a model object.
type pointer[T any] interface {
	*T
	model.Object
}

// asObject keeps nil pointers out of interfaces.
func asObject[T any, P pointer[T]](o P, ps problem.List) (model.Object, problem.List) {
	if o == nil {
		return nil, ps
	}
	return o, ps
}

// configMap decodes the mesh's configuration, or certificates of CAs; nil for ConfigMaps without either.
func configMap(in convert.Cluster, object metav1.Object) (model.Object, problem.List) {
	o := object.(*corev1.ConfigMap)
	switch {
	case o.Name == in.MeshConfigName:
		return asObject(istio.MeshConfig(in, o))
	case o.Name == model.MeshConfigName:
		return nil, nil // of other control planes
	case kube.HasAuthorities(o):
		return asObject(kube.Authorities(in, o))
	}
	return nil, nil
}

// Secret decodes a Secret whatever it has; nil for one that cannot be a credential.
func (d Decoder) Secret(o *corev1.Secret) (*model.Secret, problem.List) {
	return kube.Secret(d.cluster(), o)
}

// Authorities decodes a ConfigMap that a credential names, whatever it has.
func (d Decoder) Authorities(o *corev1.ConfigMap) (*model.Secret, problem.List) {
	return kube.Authorities(d.cluster(), o)
}
