package config_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

// TestHeadersFromTheEnvironment checks that headers of collectors get variables of the control plane, that a header without a
// value is not sent, and that JSON of the configuration, which debug pages show, does not contain the values.
func TestHeadersFromTheEnvironment(t *testing.T) {
	variables := map[string]string{"TOKEN": "50% secret\n", "BROKEN": "a\nb"}
	d := config.Decoder{Getenv: func(name string) string { return variables[name] }}
	o, problems := d.FromYAML([]byte(`apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    extensionProviders:
    - name: otel
      opentelemetry:
        service: otel.obs.svc.cluster.local
        port: 4317
        grpc: {initialMetadata: [{name: x-token, envName: TOKEN}, {name: x-none, envName: NONE}, {name: x-broken, envName: BROKEN}, {name: x-plain, value: "100%"}]}
`))
	require.NotNil(t, o)
	sent := map[string]string{}
	for _, h := range o.(*model.MeshConfig).Telemetry.Provider("otel").Headers {
		if value, ok := h.Sent(); ok {
			sent[h.Name] = value
		}
	}
	require.Equal(t, map[string]string{"x-token": "50% secret", "x-plain": "100%"}, sent)
	shown, err := json.Marshal(o)
	require.NoError(t, err)
	require.NotContains(t, string(shown), "50% secret")
	require.Contains(t, string(shown), `"EnvName":"TOKEN"`)
	require.Len(t, problems, 2)
	require.Contains(t, problems[0].String(), `grpc.initialMetadata[1].envName: the control plane has no environment variable "NONE"`)
	require.Contains(t, problems[1].String(), `"BROKEN"`)
	require.False(t, problems.HasErrors())
}
