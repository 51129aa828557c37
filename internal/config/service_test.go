package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// TestTrafficDistribution checks that a Service's field takes precedence over its annotation, which ServiceEntries
// and Namespaces may have too. Unknown values are reported and ignored.
func TestTrafficDistribution(t *testing.T) {
	const annotated = "annotations: {networking.istio.io/traffic-distribution: "
	const annotation = `metadata.annotations["networking.istio.io/traffic-distribution"]`
	for _, tc := range []struct {
		doc    string
		want   model.Distribution
		warned string // field
	}{
		{`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`, "", ""},
		{`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {trafficDistribution: PreferClose, ports: [{port: 80}]}}`, model.DistributeSameZone, ""},
		{`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {trafficDistribution: PreferSameNode, ports: [{port: 80}]}}`, model.DistributeSameNode, ""},
		{`{apiVersion: v1, kind: Service, metadata: {name: web, ` + annotated + `prefersamenode}}, spec: {ports: [{port: 80}]}}`, model.DistributeSameNode, ""},
		{`{apiVersion: v1, kind: Service, metadata: {name: web, ` + annotated + `PreferSameNode}}, spec: {trafficDistribution: PreferSameZone, ports: [{port: 80}]}}`, model.DistributeSameZone, ""},
		{`{apiVersion: v1, kind: Service, metadata: {name: web, ` + annotated + `PreferSameNode}}, spec: {trafficDistribution: Moon, ports: [{port: 80}]}}`, model.DistributeSameNode, "spec.trafficDistribution"},
		{`{apiVersion: v1, kind: Service, metadata: {name: web, ` + annotated + `Moon}}, spec: {ports: [{port: 80}]}}`, "", annotation},
		{`{apiVersion: v1, kind: Namespace, metadata: {name: web, ` + annotated + `PreferClose}}}`, model.DistributeSameZone, ""},
		{`{apiVersion: v1, kind: Namespace, metadata: {name: web, ` + annotated + `Moon}}}`, "", annotation},
		{`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: web, ` + annotated + `PreferSameZone}},
			spec: {hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}}`, model.DistributeSameZone, ""},
	} {
		o, problems := Decoder{}.FromYAML([]byte(tc.doc))
		var got model.Distribution
		switch o := o.(type) {
		case *model.Service:
			got = o.Distribution
		case *model.ServiceEntry:
			got = o.Template.Distribution
		case *model.Namespace:
			got = o.Distribution
		}
		require.Equal(t, tc.want, got, tc.doc)
		if tc.warned == "" {
			require.Empty(t, problems, tc.doc)
			continue
		}
		require.Len(t, problems, 1)
		require.Equal(t, problem.SeverityWarning, problems[0].Severity)
		require.Equal(t, tc.warned, problems[0].Field)
	}
}
