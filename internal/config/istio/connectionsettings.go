package istio

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// minWindow is HTTP/2's default size of windows, the smallest that Envoy takes.
const minWindow = 65535

// connectionSettings is nil where nothing is set.
func (c meshConv) connectionSettings(at problem.Path, s *meshconfig.ProxyConfig_ConnectionSettings) *model.ConnectionSettings {
	if s == nil {
		return nil
	}
	for field, n := range map[string]struct {
		value *wrapperspb.Int32Value
		least int32
	}{
		model.GlobalConnectionLimit:             {s.GlobalDownstreamConnectionLimit, 1},
		"listenerPerConnectionBufferLimitBytes": {s.ListenerPerConnectionBufferLimitBytes, 0},
		"httpMaxConcurrentStreams":              {s.HttpMaxConcurrentStreams, 1},
		"http2InitialStreamWindowSize":          {s.Http2InitialStreamWindowSize, minWindow},
		"http2InitialConnectionWindowSize":      {s.Http2InitialConnectionWindowSize, minWindow},
	} {
		if n.value != nil && n.value.Value < n.least {
			c.Errorf(code.InvalidNumber, at.Field(field), "%d is too small; use %d or more", n.value.Value, n.least)
		}
	}
	for field, d := range map[string]*durationpb.Duration{
		"httpIdleTimeout": s.HttpIdleTimeout, "httpMaxConnectionDuration": s.HttpMaxConnectionDuration, "httpDrainTimeout": s.HttpDrainTimeout,
		"httpRequestTimeout": s.HttpRequestTimeout, "httpRequestHeadersTimeout": s.HttpRequestHeadersTimeout,
		"httpStreamIdleTimeout": s.HttpStreamIdleTimeout, "httpMaxStreamDuration": s.HttpMaxStreamDuration,
	} {
		if d != nil && d.AsDuration() < 0 {
			c.Errorf(code.InvalidDuration, at.Field(field), "%s is negative; use 0s to switch it off", d.AsDuration())
		}
	}
	var set map[string]any
	text, _ := protojson.Marshal(s) // it was decoded from JSON
	_ = json.Unmarshal(text, &set)
	return model.ConnectionSettingsOf(set)
}
