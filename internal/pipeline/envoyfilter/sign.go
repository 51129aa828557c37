package envoyfilter

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
)

// metadataKey is where a resource says which EnvoyFilters changed it.
const metadataKey = "moonsail"

// signed notes in a resource's metadata which EnvoyFilters changed it, for people who read
// dumps and for finding what a refusal is about.
func signed(m proto.Message, by []*patch) {
	var keys []model.Key
	for _, p := range by {
		keys = append(keys, p.Origin)
	}
	Sign(m, keys...)
}

// Sign notes in a resource's metadata which EnvoyFilters it is of.
func Sign(m proto.Message, by ...model.Key) {
	fd := m.ProtoReflect().Descriptor().Fields().ByName("metadata")
	if fd == nil || fd.Message().FullName() != "envoy.config.core.v3.Metadata" {
		return
	}
	slices.SortFunc(by, model.Key.Compare)
	list := &structpb.ListValue{}
	for _, k := range slices.Compact(by) {
		list.Values = append(list.Values, structpb.NewStringValue(ConfigPath(k)))
	}
	metadata, _ := m.ProtoReflect().Get(fd).Message().Interface().(*corev3.Metadata)
	out := proto.Clone(metadata).(*corev3.Metadata)
	if out == nil {
		out = &corev3.Metadata{}
	}
	if out.FilterMetadata == nil {
		out.FilterMetadata = map[string]*structpb.Struct{}
	}
	out.FilterMetadata[metadataKey] = &structpb.Struct{Fields: map[string]*structpb.Value{"envoy_filters": structpb.NewListValue(list)}}
	m.ProtoReflect().Set(fd, protoreflect.ValueOfMessage(out.ProtoReflect()))
}

// ConfigPath names an EnvoyFilter as Istio's metadata names objects.
func ConfigPath(k model.Key) string {
	return fmt.Sprintf("/apis/networking.istio.io/v1alpha3/namespaces/%s/envoy-filter/%s", k.Namespace, k.Name)
}
