package config

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// TestEachMeshFieldIsReadOrReported sets each field of MeshConfig, also nested ones, alone: it changes the model, or a problem
// names it. The tests of agents cover the fields of defaultConfig that agents read.
func TestEachMeshFieldIsReadOrReported(t *testing.T) {
	count := map[string]int{}
	var silent []string
	leaves((&meshconfig.MeshConfig{}).ProtoReflect().Descriptor(), nil, func(at []string, values []any) {
		name := strings.Join(at, ".")
		before, beforeProblems := decodeMesh(t, base(at, nil))
		what := "silent"
		for _, value := range values {
			after, problems := decodeMesh(t, base(at, value))
			switch {
			case reported(problems, beforeProblems, at):
				what = "reported"
			case byAgents(name):
				what = "agents"
			case before != after:
				what = "read"
			}
		}
		if count[what]++; what == "silent" {
			silent = append(silent, name)
		}
	})
	t.Log(count)
	require.Equal(t, holdsAnyway, silent)
}

// holdsAnyway are fields that ask for what is so.
var holdsAnyway = []string{
	"defaultConfig.proxyHeaders.metadataExchangeHeaders.mode",              // there are no such headers, in the mesh or out of it
	"serviceSettings[].settings.clusterLocal", "serviceSettings[].hosts[]", // there is one cluster
	"extensionProviders[].opentelemetry.resourceDetectors.environment", // the detector is always in use
}

// byAgents reports whether only agents read a field.
func byAgents(name string) bool {
	field, ok := strings.CutPrefix(name, "defaultConfig.")
	first, _, _ := strings.Cut(strings.Replace(field, "[]", "", 1), ".")
	return ok && slices.Contains(model.ProxyConfigFields, first) && !slices.Contains([]string{"tracing", "proxyHeaders", "gatewayTopology"}, first)
}

// reported: some problem states that what the field is in has no effect; or one that was not there before names the field.
func reported(now, before problem.List, at []string) bool {
	field := "data.mesh." + strings.ReplaceAll(strings.Join(at, "."), "[]", "")
	last := strings.TrimSuffix(at[len(at)-1], "[]")
	return slices.ContainsFunc(now, func(p problem.Problem) bool {
		said := indices.ReplaceAllString(p.Field, "")
		above := strings.HasPrefix(field, said+".") && (strings.Contains(p.Message, "no effect") || strings.Contains(p.Message, "instead"))
		return above || !slices.Contains(before, p) && (strings.HasPrefix(said, field) || strings.Contains(p.Message, last))
	})
}

var indices = regexp.MustCompile(`\[[^\]]*\]`)

func decodeMesh(t *testing.T, said any) (model string, problems problem.List) {
	t.Helper()
	text, err := json.Marshal(said)
	require.NoError(t, err)
	c, problems := istio.MeshConfig(Decoder{Getenv: func(name string) string { return "value of " + name }}.cluster(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: Decoder{}.MeshConfigName(), Namespace: "istio-system"}, Data: map[string]string{"mesh": string(text)},
	})
	if c != nil {
		c.ProxyDefaults = ""
	}
	out, err := json.Marshal(c)
	require.NoError(t, err)
	return string(out), problems
}

// bases are what fields need beside them, by the beginning of their paths.
var bases = map[string]string{
	"extensionProviders[].envoyExtAuthzHttp":                           `{"extensionProviders":[{"name":"a","envoyExtAuthzHttp":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].envoyExtAuthzGrpc":                           `{"extensionProviders":[{"name":"a","envoyExtAuthzGrpc":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].zipkin":                                      `{"extensionProviders":[{"name":"a","zipkin":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].opentelemetry":                               `{"extensionProviders":[{"name":"a","opentelemetry":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].envoyHttpAls":                                `{"extensionProviders":[{"name":"a","envoyHttpAls":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].envoyTcpAls":                                 `{"extensionProviders":[{"name":"a","envoyTcpAls":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].envoyOtelAls":                                `{"extensionProviders":[{"name":"a","envoyOtelAls":{"service":"a.b","port":80}}]}`,
	"extensionProviders[].envoyFileAccessLog":                          `{"extensionProviders":[{"name":"a","envoyFileAccessLog":{}}]}`,
	"extensionProviders[].prometheus":                                  `{"extensionProviders":[{"name":"a"}]}`,
	"discoverySelectors[].matchExpressions[]":                          `{"discoverySelectors":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}`,
	"extensionProviders[].envoyExtAuthzHttp.includeRequestBodyInCheck": `{"extensionProviders":[{"name":"a","envoyExtAuthzHttp":{"service":"a.b","port":80,"includeRequestBodyInCheck":{"maxRequestBytes":9}}}]}`,
	"extensionProviders[].envoyExtAuthzGrpc.includeRequestBodyInCheck": `{"extensionProviders":[{"name":"a","envoyExtAuthzGrpc":{"service":"a.b","port":80,"includeRequestBodyInCheck":{"maxRequestBytes":9}}}]}`,
	"defaultConfig.tracing.zipkin":                                     `{"enableTracing":true}`,
}

func base(at []string, value any) any {
	doc := map[string]any{"defaultConfig": map[string]any{}} // has what holds of telemetry be part of the model
	for n := range at {
		if text, ok := bases[strings.Join(at[:n+1], ".")]; ok {
			doc = map[string]any{}
			if err := json.Unmarshal([]byte(text), &doc); err != nil {
				panic(err)
			}
		}
	}
	put(doc, at, value)
	return doc
}

// put sets a field at a path, but not to nil; a name that ends with "[]" is a list's of one element.
func put(in map[string]any, at []string, value any) {
	name, list := strings.CutSuffix(at[0], "[]")
	if len(at) == 1 {
		if value == nil {
			return
		}
		if list {
			value = []any{value}
		}
		in[name] = value
		return
	}
	next := map[string]any{}
	if there, ok := in[name].(map[string]any); ok {
		next = there
	} else if all, ok := in[name].([]any); ok {
		next = all[0].(map[string]any)
	}
	put(next, at[1:], value)
	in[name] = next
	if list {
		in[name] = []any{next}
	}
}

// leaves visits the fields of a message that are no messages, with a value that is not the default.
func leaves(m protoreflect.MessageDescriptor, at []string, visit func(at []string, values []any)) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := f.JSONName()
		if f.IsList() {
			name += "[]"
		}
		path := append(slices.Clone(at), name)
		switch values := leaf(f); {
		case values != nil:
			visit(path, values)
		case !slices.Contains(at, name):
			leaves(f.Message(), path, visit)
		}
	}
}

var wellKnown = map[protoreflect.FullName][]any{
	"google.protobuf.Duration": {"3s"}, "google.protobuf.BoolValue": {true, false}, "google.protobuf.Int32Value": {7},
	"google.protobuf.UInt32Value": {7}, "google.protobuf.Int64Value": {7}, "google.protobuf.Struct": {map[string]any{"a": "b"}},
}

// leaf returns values of a field that is not a message with fields; otherwise nil.
func leaf(f protoreflect.FieldDescriptor) []any {
	if f.IsMap() {
		return []any{map[string]any{"k": valueOfMap(f.MapValue())}}
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		if f.Message().Fields().Len() == 0 {
			return []any{map[string]any{}}
		}
		return wellKnown[f.Message().FullName()]
	case protoreflect.EnumKind:
		return []any{string(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Name())}
	case protoreflect.BoolKind:
		return []any{true, false}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return []any{"x"}
	}
	return []any{7}
}

// valueOfMap is a value of a map: a message has its first field.
func valueOfMap(f protoreflect.FieldDescriptor) any {
	if values := leaf(f); values != nil {
		return values[0]
	}
	first := map[string]any{}
	leaves(f.Message(), nil, func(at []string, values []any) {
		if len(first) == 0 {
			put(first, at, values[0])
		}
	})
	return first
}
