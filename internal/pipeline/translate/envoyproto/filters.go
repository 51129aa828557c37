package envoyproto

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
)

// HTTPFilter packs a filter, after Envoy's own check of its configuration.
func HTTPFilter(name string, config Validated) (*hcmv3.HttpFilter, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	packed, err := Pack(config)
	if err != nil {
		return nil, err
	}
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed}}, nil
}

// NetworkFilter packs a filter, after Envoy's own check of its configuration.
func NetworkFilter(name string, config Validated) (*listenerv3.Filter, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	packed, err := Pack(config)
	if err != nil {
		return nil, err
	}
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed}}, nil
}

func MustHTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: MustPack(config)}}
}

// Validated is a message of Envoy's API. Envoy's rules for what is packed into an Any are
// not checked with the message around it.
type Validated interface {
	proto.Message
	Validate() error
}
