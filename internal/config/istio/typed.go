package istio

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// typedKind is how objects of a kind are decoded, once they are of their Go type.
type typedKind struct {
	empty  func() metav1.Object
	decode func(Decoder, metav1.Object) (model.Object, Problems)
}

// typedKinds has a row for each kind that the mesh reads.
var typedKinds = map[model.Kind]typedKind{
	model.KindNamespace:     typed(Decoder.Namespace),
	model.KindService:       typed(Decoder.Service),
	model.KindPod:           typed(Decoder.Pod),
	model.KindNode:          typed(Decoder.Node),
	model.KindMeshConfig:    {empty[corev1.ConfigMap], func(d Decoder, o metav1.Object) (model.Object, Problems) { return d.configMap(o.(*corev1.ConfigMap)) }},
	model.KindSecret:        typed(Decoder.Secret),
	model.KindEndpointSlice: typed(Decoder.EndpointSlice),

	model.KindServiceEntry:          typed(Decoder.ServiceEntry),
	model.KindWorkloadEntry:         typed(Decoder.WorkloadEntry),
	model.KindVirtualService:        typed(Decoder.VirtualService),
	model.KindDestinationRule:       typed(Decoder.DestinationRule),
	model.KindGateway:               typed(Decoder.Gateway),
	model.KindSidecar:               typed(Decoder.Sidecar),
	model.KindWasmPlugin:            typed(Decoder.WasmPlugin),
	model.KindProxyConfig:           typed(Decoder.ProxyConfig),
	model.KindTelemetry:             typed(Decoder.Telemetry),
	model.KindEnvoyFilter:           typed(Decoder.EnvoyFilter),
	model.KindPeerAuthentication:    typed(Decoder.PeerAuthentication),
	model.KindAuthorizationPolicy:   typed(Decoder.AuthorizationPolicy),
	model.KindRequestAuthentication: typed(Decoder.RequestAuthentication),

	model.KindKubernetesGateway: typed(Decoder.KubernetesGateway),
	model.KindHTTPRoute:         typed(Decoder.HTTPRoute),
	model.KindGRPCRoute:         typed(Decoder.GRPCRoute),
	model.KindTLSRoute:          typed(Decoder.TLSRoute),
	model.KindTCPRoute:          typed(Decoder.TCPRoute),
	model.KindReferenceGrant:    typed(Decoder.ReferenceGrant),
	model.KindBackendTLSPolicy:  typed(Decoder.BackendTLSPolicy),
	// Its name, which Gateways have, says enough.
	model.KindGatewayClass: {empty[gatewayv1.GatewayClass], func(Decoder, metav1.Object) (model.Object, Problems) { return nil, nil }},
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
func typed[T, M any, P source[T], O pointer[M]](decode func(Decoder, P) (O, Problems)) typedKind {
	return typedKind{empty[T, P], func(d Decoder, o metav1.Object) (model.Object, Problems) { return asObject[M](decode(d, o.(P))) }}
}

// newTyped makes an empty typed object; kind is one of readKinds.
func newTyped(kind model.Kind) metav1.Object { return typedKinds[kind].empty() }

// FromTyped decodes a typed object, as informers hold them. The object is nil where
// there are errors.
func (d Decoder) FromTyped(o metav1.Object) (model.Object, Problems) {
	row, ok := typedRows[reflect.TypeOf(o)]
	if !ok {
		return nil, Problems{{Severity: SeverityError, Message: fmt.Sprintf("%T is not a type that the mesh reads", o)}}
	}
	return row.decode(d, o)
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
