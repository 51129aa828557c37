package envoyfilter

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/model"
)

// resolve puts the configurations that EXTENSION_CONFIG adds into the filters that request them from the xDS stream.
// The configuration becomes a part of the filter, so listeners do not wait for it.
func (s *Set) resolve() []Problem {
	configs := map[string]*anypb.Any{}
	for _, p := range s.by[model.PatchExtensionConfig] {
		if c := p.value.(*corev3.TypedExtensionConfig); configs[c.Name] == nil {
			configs[c.Name] = c.TypedConfig
		}
	}
	var problems []Problem
	for _, target := range []model.PatchTarget{model.PatchHTTPFilter, model.PatchNetworkFilter, model.PatchListenerFilter} {
		var kept []*patch
		for _, p := range s.by[target] {
			name, source := discovery(p.value)
			config := configs[name]
			if config == nil {
				config = source.GetDefaultConfig()
			}
			switch {
			case source == nil || !byStream(source):
			case config == nil:
				problems = append(problems, p.problem("no EXTENSION_CONFIG adds %q, and the filter has no default_config"+leftOut, name))
				continue
			default:
				p.value = withConfig(p.value, config)
			}
			kept = append(kept, p)
		}
		s.by[target] = kept
	}
	return problems
}

// byStream reports whether a filter requests its configuration from the xDS stream.
func byStream(s *corev3.ExtensionConfigSource) bool {
	return s.GetConfigSource().GetAds() != nil || s.GetConfigSource().GetSelf() != nil
}

// discovery returns the source of a filter's configuration; nil: the filter contains it.
func discovery(m proto.Message) (name string, source *corev3.ExtensionConfigSource) {
	switch m := m.(type) {
	case *hcmv3.HttpFilter:
		return m.Name, m.GetConfigDiscovery()
	case *listenerv3.Filter:
		return m.Name, m.GetConfigDiscovery()
	case *listenerv3.ListenerFilter:
		return m.Name, m.GetConfigDiscovery()
	}
	return "", nil
}

func withConfig(m proto.Message, config *anypb.Any) proto.Message {
	out := proto.Clone(m)
	switch out := out.(type) {
	case *hcmv3.HttpFilter:
		out.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}
	case *listenerv3.Filter:
		out.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
	case *listenerv3.ListenerFilter:
		out.ConfigType = &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}
	}
	return out
}
