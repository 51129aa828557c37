package translate

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// istioMetadata is the key under which Istio's telemetry and tools look.
const istioMetadata = "istio"

// underIstio is nil where there are no fields.
func underIstio(fields map[string]*structpb.Value) *corev3.Metadata {
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{istioMetadata: {Fields: fields}}}
}

// configPath is how Istio names an object in metadata: its path at the API server.
// Origin is "namespace/name".
func configPath(kebabKind, origin string) *structpb.Value {
	namespace, name, _ := strings.Cut(origin, "/")
	return structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + namespace + "/" + kebabKind + "/" + name)
}

// serviceList is the list of one service, as Istio's statistics read it.
func serviceList(s ir.ServiceRef) *structpb.Value {
	service := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"host":      structpb.NewStringValue(string(s.Host)),
		"name":      structpb.NewStringValue(s.Name),
		"namespace": structpb.NewStringValue(s.Namespace),
	}})
	return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{service}})
}
