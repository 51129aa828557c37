package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

// TestHeadersFromTheEnvironment checks that headers of collectors get variables of the control plane, and that a header without
// a value is left out.
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
	require.Equal(t, []model.HeaderValue{{Name: "x-token", Value: "50% secret"}, {Name: "x-plain", Value: "100%"}},
		o.(*model.MeshConfig).Telemetry.Provider("otel").Headers)
	require.Len(t, problems, 2)
	require.Contains(t, problems[0].String(), `grpc.initialMetadata[1].envName: the control plane has no environment variable "NONE"`)
	require.Contains(t, problems[1].String(), `"BROKEN"`)
	require.False(t, problems.HasErrors())
}
