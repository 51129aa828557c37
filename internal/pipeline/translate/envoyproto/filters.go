package envoyproto

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
)

// Validated is a message with Envoy's validation rules. Validating a message does not validate what is packed
// inside it, so each packed configuration is validated on its own.
type Validated interface {
	proto.Message
	Validate() error
}

// HTTPFilter validates and packs the configuration of an HTTP filter.
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

// NetworkFilter validates and packs the configuration of a network filter.
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

// MustHTTPFilter packs the configuration of an HTTP filter that has no text of users.
func MustHTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: MustPack(config)}}
}
