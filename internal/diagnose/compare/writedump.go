package compare

import (
	"encoding/json"
	"io"

	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// WriteDump writes a proxy as Envoy's config dump has it, so that ParseDump reads it again. Of extensions that this binary does
// not know it writes the type only.
func WriteDump(w io.Writer, p *Proxy) error {
	d := map[string][]any{}
	put := func(key string, m proto.Message, wrap func(any) any) error {
		packed, err := anypb.New(m)
		if err != nil {
			return err
		}
		text, err := protojson.MarshalOptions{Resolver: lenient{protoregistry.GlobalTypes}, UseProtoNames: true}.Marshal(packed)
		if err == nil {
			d[key] = append(d[key], wrap(json.RawMessage(text)))
		}
		return err
	}
	in := func(field string) func(any) any {
		return func(v any) any { return map[string]any{field: v} }
	}
	for _, l := range p.World.Listeners {
		err := put("dynamic_listeners", l, func(v any) any {
			return map[string]any{"name": l.GetName(), "active_state": map[string]any{"listener": v}}
		})
		if err != nil {
			return err
		}
	}
	for _, c := range p.World.Clusters {
		if err := put("dynamic_active_clusters", c, in("cluster")); err != nil {
			return err
		}
	}
	for _, r := range p.World.Routes {
		whole, err := p.World.RouteConfig(r.GetName())
		if err != nil {
			return err
		}
		if err := put("dynamic_route_configs", whole, in("route_config")); err != nil {
			return err
		}
	}
	for _, e := range p.World.Endpoints {
		if err := put("dynamic_endpoint_configs", e, in("endpoint_config")); err != nil {
			return err
		}
	}
	node, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.Node.envoy)
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	configs := []any{map[string]any{"bootstrap": map[string]any{"node": json.RawMessage(node)}}}
	if p.Kind != Unknown {
		configs = append(configs, map[string]any{"control_plane": p.Kind})
	}
	return e.Encode(map[string]any{"configs": append(configs, d)})
}

// lenient resolves types that are unknown to one without fields.
type lenient struct{ *protoregistry.Types }

func (l lenient) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := l.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (&rawbufferv3.RawBuffer{}).ProtoReflect().Type(), nil
}
