package istioapi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrafficDistribution holds that who asks for near endpoints is told that this is not honoured.
func TestTrafficDistribution(t *testing.T) {
	for doc, field := range map[string]string{
		`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {trafficDistribution: PreferClose, ports: [{port: 80}]}}`: "spec.trafficDistribution",
		`{apiVersion: v1, kind: Service, metadata: {name: web, annotations: {networking.istio.io/traffic-distribution: PreferClose}},
			spec: {ports: [{port: 80}]}}`: `metadata.annotations["networking.istio.io/traffic-distribution"]`,
		`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`: "",
	} {
		o, problems := Decoder{}.FromYAML([]byte(doc))
		require.NotNil(t, o, doc)
		if field == "" {
			require.Empty(t, problems)
			continue
		}
		require.Len(t, problems, 1)
		require.Equal(t, SeverityWarning, problems[0].Severity)
		require.Equal(t, field, problems[0].Field)
	}
}
