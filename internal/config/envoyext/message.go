package envoyext

import (
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
)

// messages are the types of what EnvoyFilters may change, by applyTo.
var messages = map[string]proto.Message{
	"LISTENER":            &listenerv3.Listener{},
	"FILTER_CHAIN":        &listenerv3.FilterChain{},
	"LISTENER_FILTER":     &listenerv3.ListenerFilter{},
	"NETWORK_FILTER":      &listenerv3.Filter{},
	"HTTP_FILTER":         &hcmv3.HttpFilter{},
	"ROUTE_CONFIGURATION": &routev3.RouteConfiguration{},
	"VIRTUAL_HOST":        &routev3.VirtualHost{},
	"HTTP_ROUTE":          &routev3.Route{},
	"CLUSTER":             &clusterv3.Cluster{},
	"EXTENSION_CONFIG":    &corev3.TypedExtensionConfig{},
	"BOOTSTRAP":           &bootstrapv3.Bootstrap{},
}

// Message makes an empty message of the type that applyTo changes; nil where it names none.
func Message(applyTo string) proto.Message {
	m, ok := messages[applyTo]
	if !ok {
		return nil
	}
	return m.ProtoReflect().New().Interface()
}

// Pack encodes a message for Unpack; equal messages give equal bytes.
func Pack(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Unpack decodes what Pack made of a message that applyTo changes.
func Unpack(applyTo string, b []byte) (proto.Message, error) {
	m := Message(applyTo)
	return m, proto.Unmarshal(b, m)
}

// NameOf is a message's field "name"; empty where it has none.
func NameOf(m proto.Message) string {
	if fd := m.ProtoReflect().Descriptor().Fields().ByName("name"); fd != nil {
		return m.ProtoReflect().Get(fd).String()
	}
	return ""
}

// DomainsOf are the domains of a virtual host.
func DomainsOf(m proto.Message) []string {
	v, _ := m.(*routev3.VirtualHost)
	return v.GetDomains()
}
