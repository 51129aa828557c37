package compare

import (
	"encoding/json"
	"errors"
	"io"

	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/diagnose/configdump"
)

// WriteDump writes a proxy as Envoy's config dump has it, so that ParseDump reads it again. Of extensions that this binary does
// not know it writes the type only.
func WriteDump(w io.Writer, p *Proxy) error {
	node, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.Node.envoy)
	if err != nil {
		return err
	}
	d := configdump.Dump{Configs: []configdump.Section{{Bootstrap: &configdump.Bootstrap{Node: node}}}}
	if p.Kind != Unknown {
		d.Configs = append(d.Configs, configdump.Section{ControlPlane: string(p.Kind)})
	}
	c, err := p.section()
	if err != nil {
		return err
	}
	d.Configs = append(d.Configs, c)
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(d)
}

// section returns all resources of a proxy, as if they were in one section.
func (p *Proxy) section() (c configdump.Section, err error) {
	var failed error
	encode := func(m proto.Message) json.RawMessage {
		text, err := encodeResource(m)
		failed = errors.Join(failed, err)
		return text
	}
	for _, l := range p.World.Listeners {
		c.Listeners = append(c.Listeners, configdump.Listener{Name: l.GetName(), Active: &configdump.ListenerState{Listener: encode(l)}})
	}
	for _, cl := range p.World.Clusters {
		c.Clusters = append(c.Clusters, configdump.Cluster{Cluster: encode(cl)})
	}
	for _, r := range p.World.Routes {
		whole, err := p.World.RouteConfig(r.GetName())
		if err != nil {
			return c, err
		}
		c.Routes = append(c.Routes, configdump.Route{RouteConfig: encode(whole)})
	}
	for _, e := range p.World.Endpoints {
		c.Endpoints = append(c.Endpoints, configdump.Endpoint{Endpoints: encode(e)})
	}
	return c, failed
}

// encodeResource encodes a resource as a google.protobuf.Any.
func encodeResource(m proto.Message) (json.RawMessage, error) {
	packed, err := anypb.New(m)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{Resolver: lenient{protoregistry.GlobalTypes}, UseProtoNames: true}.Marshal(packed)
}

// lenient resolves types that are unknown to one without fields.
type lenient struct{ *protoregistry.Types }

func (l lenient) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := l.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return (&rawbufferv3.RawBuffer{}).ProtoReflect().Type(), nil
}
