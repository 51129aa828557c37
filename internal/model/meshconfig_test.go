package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTLSDefaultsUnder(t *testing.T) {
	own := &ServerTLS{Mode: ServerSimple, MinVersion: "TLSv1_2", CipherSuites: []string{"AES128-SHA"}}
	require.Same(t, own, (*TLSDefaults)(nil).Under(own))

	d := &TLSDefaults{MinVersion: "TLSv1_3", CipherSuites: []string{"AES256-SHA"}, ECDHCurves: []string{"P-256"}}
	out := d.Under(own)
	require.Equal(t, &ServerTLS{Mode: ServerSimple, MinVersion: "TLSv1_2", CipherSuites: []string{"AES128-SHA"}, ECDHCurves: []string{"P-256"}}, out)
	require.Empty(t, own.ECDHCurves, "unchanged")

	require.Equal(t, &ServerTLS{MinVersion: "TLSv1_3", CipherSuites: []string{"AES256-SHA"}, ECDHCurves: []string{"P-256"}}, d.Under(&ServerTLS{}))
	require.Equal(t, "TLSv1_2", d.Under(&ServerTLS{MaxVersion: "TLSv1_2"}).MinVersion, "a server that takes no newer one")
}

// TestBaseSampling checks that the control plane's share of traces applies where neither MeshConfig nor the Pod sets one.
func TestBaseSampling(t *testing.T) {
	without, with := DefaultMeshTelemetry(), DefaultMeshTelemetry()
	with.Sampling = 7
	for name, tc := range map[string]struct {
		config *MeshConfig
		pod    ProxyTracing
		set    float64 // 0: the control plane's
	}{
		"no MeshConfig":                              {},
		"MeshConfig without telemetry":               {config: &MeshConfig{}},
		"MeshConfig without sampling":                {config: &MeshConfig{Telemetry: &without}},
		"MeshConfig with sampling":                   {config: &MeshConfig{Telemetry: &with}, set: 7},
		"Pod without sampling":                       {pod: `{"maxPathTagLength":5}`},
		"Pod without sampling, MeshConfig with one":  {config: &MeshConfig{Telemetry: &with}, pod: `{"maxPathTagLength":5}`},
		"Pod with sampling, MeshConfig without one":  {config: &MeshConfig{Telemetry: &without}, pod: `{"sampling":3}`, set: 3},
		"Pod and MeshConfig, each without a setting": {config: &MeshConfig{Telemetry: &without}, pod: `{"maxPathTagLength":5}`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, share := range []float64{0, 0.5, 100} {
				base := DefaultMesh()
				base.Telemetry.BaseSampling = share
				out := tc.pod.Over(&tc.config.Over(base).Telemetry)
				require.InDelta(t, tc.set, out.Sampling, 0)
				require.InDelta(t, share, out.BaseSampling, 0)
			}
		})
	}
}
