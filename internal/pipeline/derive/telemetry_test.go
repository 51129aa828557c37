package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

var (
	worldCollectors = []string{"prometheus", "envoy", "json", "als", "otel", "zipkin", "nobody"}
	worldMetrics    = []model.Metric{"", model.MetricRequests, model.MetricTCPSent}
	worldSides      = []model.Sides{model.SideClient, model.SideServer, model.BothSides}
)

func (w *world) maybe() *bool {
	v := w.chance(0.5)
	return pick(w, []*bool{nil, &v})
}

func (w *world) telemetry() model.Object {
	t := &model.Telemetry{Meta: w.meta(model.KindTelemetry)}
	w.selectOrTarget(&t.Selector, &t.Targets)
	for range w.IntN(3) {
		t.Metrics = append(t.Metrics, model.MetricsRule{Providers: w.providers(), Overrides: []model.MetricOverride{{
			Metric: pick(w, worldMetrics), Sides: pick(w, worldSides), Disabled: w.maybe(),
			Tags: []model.TagOverride{{Name: pick(w, worldNames), Remove: w.chance(0.5), Format: "x"}},
		}}})
	}
	for range w.IntN(3) {
		t.Logging = append(t.Logging, model.LoggingRule{
			Providers: w.providers(), Sides: pick(w, worldSides), Disabled: w.maybe(), Filter: pick(w, []string{"", "true"}),
		})
	}
	for range w.IntN(3) {
		sampling := float64(w.IntN(3))
		t.Tracing = append(t.Tracing, model.TracingRule{
			Provider: pick(w, append(worldCollectors, "")), Sides: pick(w, worldSides), Disabled: w.maybe(),
			Sampling: pick(w, []*float64{nil, &sampling}), RequestID: w.maybe(),
			Tags: map[string]model.TraceTag{pick(w, worldNames): {Literal: "x"}},
		})
	}
	return t
}

func (w *world) providers() []string {
	var out []string
	for range w.IntN(3) {
		out = append(out, pick(w, worldCollectors))
	}
	return out
}

// meshTelemetry has providers whose services come and go.
func (w *world) meshTelemetry() *model.MeshTelemetry {
	if w.chance(0.3) {
		return nil
	}
	t := model.DefaultMeshTelemetry()
	t.Providers = append(t.Providers,
		model.Provider{Name: "json", Kind: model.ProviderFileLog, Log: model.LogFormat{Path: "/dev/null", JSON: "{}"}},
		model.Provider{Name: "als", Kind: model.ProviderHTTPLog, Host: w.host(), Port: 80},
		model.Provider{Name: "otel", Kind: model.ProviderOpenTelemetry, Host: w.host(), Port: 9000},
		model.Provider{Name: "zipkin", Kind: model.ProviderZipkin, Host: w.host(), Port: 80, Path: "/x", Namespace: pick(w, []string{"", "a"})},
	)
	t.Metrics, t.Logging, t.Tracing = w.providers(), w.providers(), w.providers()
	return &t
}

// TestTelemetryIsForWhomItSelects: a Telemetry with a selector changes the listeners of the
// workloads that it selects, and of no others.
func TestTelemetryIsForWhomItSelects(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	proxy := func(app string) *model.Proxy {
		return &model.Proxy{
			Type: model.ProxySidecar, Namespace: "a", IPs: []string{"10.0.0.1"}, Labels: map[string]string{"app": app},
			DNSDomain: "a.svc.cluster.local", Interception: model.InterceptRedirect,
		}
	}
	apply := func(o *model.Telemetry) Update {
		o.Kind, o.Name, o.Namespace = model.KindTelemetry, "t", "a"
		return d.Apply([]store.Change{{Key: o.Key, New: o}})
	}
	_, in := d.Index().Keys(proxy("x"))
	_, other := d.Index().Keys(proxy("y"))
	d.Open(in)
	d.Open(other)
	u := apply(&model.Telemetry{
		Selector: map[string]string{"app": "x"},
		Logging:  []model.LoggingRule{{Providers: []string{"envoy"}, Sides: model.BothSides}},
	})
	require.Contains(t, u.Deltas, in)
	require.NotContains(t, u.Deltas, other)
	require.True(t, u.Rekey(proxy("x")), "outbound scopes are told apart by the label from now on")
	l := u.Deltas[in].Listeners["virtualInbound"]
	require.Len(t, l.Default.TCP.Telemetry.Logs, 1)
	require.Nil(t, l.Chains[0].TCP.Telemetry, "connections to the sidecar itself are no calls")

	out, _ := d.Index().Keys(proxy("x"))
	otherOut, _ := d.Index().Keys(proxy("y"))
	require.NotEqual(t, out, otherOut)
	require.Len(t, d.Open(out).Listeners["virtualOutbound"].Default.TCP.Telemetry.Logs, 1)
	require.Empty(t, d.Open(otherOut).Listeners["virtualOutbound"].Default.TCP.Telemetry.Logs)
}

// TestCollectorIsKept: a Sidecar that imports nothing leaves the cluster that spans go to.
func TestCollectorIsKept(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.Telemetry.Providers = append(mesh.Telemetry.Providers,
		model.Provider{Name: "otel", Kind: model.ProviderOpenTelemetry, Host: "otel.a.svc.cluster.local", Port: 4317})
	mesh.Telemetry.Tracing = []string{"otel"}
	d := New(mesh, 1)
	sidecar := &model.Sidecar{Egress: []model.EgressListener{{Hosts: []model.HostSelector{{Namespace: "~", Host: "*"}}}}}
	sidecar.Key = model.Key{Kind: model.KindSidecar, Namespace: "a", Name: "default"}
	d.Apply([]store.Change{{Key: sidecar.Key, New: sidecar}})
	out, _ := d.Index().Keys(&model.Proxy{
		Type: model.ProxySidecar, Namespace: "a", DNSDomain: "a.svc.cluster.local", Interception: model.InterceptRedirect,
	})
	require.NotContains(t, d.Open(out).Clusters, "outbound|4317||otel.a.svc.cluster.local", "there is no such service")
	svc := &model.Service{
		Hostname: "otel.a.svc.cluster.local", Ports: []model.ServicePort{{Name: "grpc", Number: 4317, Protocol: model.ProtocolGRPC}},
	}
	svc.Key = model.Key{Kind: model.KindService, Namespace: "a", Name: "otel"}
	delta := d.Apply([]store.Change{{Key: svc.Key, New: svc}}).Deltas[out]
	require.Contains(t, delta.Clusters, "outbound|4317||otel.a.svc.cluster.local")
	require.Equal(t, "outbound|4317||otel.a.svc.cluster.local", delta.Listeners["virtualOutbound"].Default.TCP.Telemetry.Tracing.Cluster)
	delta = d.Apply([]store.Change{{Key: svc.Key, Old: svc}}).Deltas[out]
	require.Nil(t, delta.Clusters["outbound|4317||otel.a.svc.cluster.local"])
	require.Nil(t, delta.Listeners["virtualOutbound"].Default.TCP.Telemetry.Tracing)
}
