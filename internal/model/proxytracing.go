package model

import (
	"encoding/json"
	"maps"
	"slices"
)

// ProxyTracing is what a proxy says of its traces itself, in place of all that the mesh's defaultConfig says of
// them; a Telemetry goes before it. It is the JSON of Istio's tracing, keys in order, so that it is comparable. Empty:
// nothing is said.
type ProxyTracing string

// TracingFields are those of its fields that have an effect, in their JSON spelling, sorted.
var TracingFields = []string{"customTags", "enableIstioTags", "maxPathTagLength", "sampling"}

// maxProxyTracing bounds what a proxy may say, in bytes.
const maxProxyTracing = 16 << 10

// ProxyTracingOf reads it in JSON's form; nil, or what is too long: nothing is said.
func ProxyTracingOf(said map[string]any) ProxyTracing {
	if said == nil {
		return ""
	}
	said = maps.Clone(said)
	maps.DeleteFunc(said, func(field string, _ any) bool { return !slices.Contains(TracingFields, field) })
	text, err := json.Marshal(said)
	if err != nil || len(text) > maxProxyTracing {
		return ""
	}
	return ProxyTracing(text)
}

// Over is the mesh's telemetry with the proxy's own traces. What is of another type than it should be, or no
// percentage, counts as not said, and so does a tag without a value.
func (p ProxyTracing) Over(mesh *MeshTelemetry) *MeshTelemetry {
	if p == "" {
		return mesh
	}
	var said map[string]any
	_ = json.Unmarshal([]byte(p), &said) // it was made from JSON
	out := *mesh
	out.Sampling, out.MaxTagLength, out.Tags = DefaultMeshTelemetry().Sampling, 0, proxyTags(said["customTags"])
	if s, _ := said["sampling"].(float64); s > 0 && s <= 100 {
		out.Sampling = s
	}
	if n, _ := said["maxPathTagLength"].(float64); n >= 1 && n <= 1<<31 {
		out.MaxTagLength = uint32(n)
	}
	istio, ok := said["enableIstioTags"].(bool)
	out.NoIstioTags = ok && !istio
	return &out
}

func proxyTags(v any) map[string]TraceTag {
	said, _ := v.(map[string]any)
	out := make(map[string]TraceTag, len(said))
	for name, v := range said {
		tag := TraceTag{
			Literal: textAt(v, "literal", "value"), Header: textAt(v, "header", "name"), Environment: textAt(v, "environment", "name"),
			Default: textAt(v, "header", "defaultValue") + textAt(v, "environment", "defaultValue"),
		}
		if name != "" && tag.Literal+tag.Header+tag.Environment != "" {
			out[name] = tag
		}
	}
	return out
}

func textAt(v any, path ...string) string {
	for _, name := range path {
		in, _ := v.(map[string]any)
		v = in[name]
	}
	text, _ := v.(string)
	return text
}
