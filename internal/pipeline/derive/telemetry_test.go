package derive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
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

func on() *bool  { v := true; return &v }
func off() *bool { v := false; return &v }

func metric(m model.Metric, s model.Sides, disabled *bool, tags ...model.TagOverride) model.MetricOverride {
	return model.MetricOverride{Metric: m, Sides: s, Disabled: disabled, Tags: tags}
}

// names are those of the metrics.
func names(list []ir.Metric) []model.Metric {
	var out []model.Metric
	for _, m := range list {
		out = append(out, m.Metric)
	}
	return out
}

// TestMetrics: later rules go over earlier ones, each side for itself.
func TestMetrics(t *testing.T) {
	rules := func(list ...model.MetricsRule) []*model.Telemetry {
		var out []*model.Telemetry
		for _, r := range list {
			out = append(out, &model.Telemetry{Metrics: []model.MetricsRule{r}})
		}
		return out
	}
	override := func(list ...model.MetricOverride) model.MetricsRule { return model.MetricsRule{Overrides: list} }
	get := func(side model.Sides, list ...model.MetricsRule) []ir.Metric {
		got, _ := metricsOf(rules(list...), model.DefaultMesh(), side)
		return got
	}
	every := func(list ...model.MetricsRule) time.Duration {
		_, got := metricsOf(rules(list...), model.DefaultMesh(), model.SideClient)
		return got
	}
	require.Equal(t, model.DefaultReporting, every(override()))
	second, third := model.MetricsRule{Every: 2 * time.Second}, model.MetricsRule{Every: 3 * time.Second}
	require.Equal(t, 3*time.Second, every(second, third, override()), "the last that says something")
	require.Equal(t, 2*time.Second, every(second, model.MetricsRule{Providers: []string{"nobody"}, Every: time.Second}, model.MetricsRule{Providers: []string{"prometheus"}}))
	require.Equal(t, model.Metrics, names(get(model.SideClient)), "on by default")
	require.Empty(t, get(model.SideClient, model.MetricsRule{Providers: []string{"nobody"}}))
	require.Empty(t, get(model.SideClient, override(metric("", model.BothSides, on()))))
	require.Len(t, get(model.SideServer, override(metric("", model.SideClient, on()))), len(model.Metrics))
	require.Len(t, get(model.SideClient, override(metric("", model.BothSides, on())), override(metric("", model.BothSides, off()))), len(model.Metrics))
	require.NotContains(t, names(get(model.SideClient, override(metric(model.MetricDuration, model.BothSides, on())))), model.MetricDuration)
	got := get(model.SideClient,
		override(metric("", model.BothSides, nil, model.TagOverride{Name: "a", Format: "1"}, model.TagOverride{Name: "b", Format: "1"})),
		override(metric(model.MetricRequests, model.SideClient, nil, model.TagOverride{Name: "b", Remove: true}, model.TagOverride{Name: "c", Format: "2"})))
	require.Equal(t, ir.Metric{
		Metric: model.MetricRequests, Removed: []string{"b"}, Tags: []ir.MetricTag{{Name: "a", Format: "1"}, {Name: "c", Format: "2"}},
	}, got[0])
	require.Len(t, got[1].Tags, 2)
}

// TestLogs: the last Telemetry that names providers decides which ones count.
func TestLogs(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.Telemetry.Providers = append(mesh.Telemetry.Providers, model.Provider{Name: "other", Kind: model.ProviderFileLog})
	get := func(side model.Sides, list ...[]model.LoggingRule) map[string]string {
		var rules []*model.Telemetry
		for _, l := range list {
			rules = append(rules, &model.Telemetry{Logging: l})
		}
		out := map[string]string{}
		for _, l := range logsOf(rules, mesh, side) {
			out[l.Name] = l.Filter
		}
		return out
	}
	envoy := func(filter string, disabled *bool, s model.Sides) model.LoggingRule {
		return model.LoggingRule{Providers: []string{"envoy"}, Sides: s, Filter: filter, Disabled: disabled}
	}
	none := map[string]string{}
	require.Equal(t, none, get(model.SideClient), "off by default")
	require.Equal(t, map[string]string{"envoy": ""}, get(model.SideClient, []model.LoggingRule{envoy("", nil, model.BothSides)}))
	require.Equal(t, none, get(model.SideClient, []model.LoggingRule{envoy("", nil, model.SideServer)}))
	require.Equal(t, map[string]string{"envoy": "a"}, get(model.SideServer, []model.LoggingRule{envoy("a", off(), model.SideServer)}))
	require.Equal(t, none, get(model.SideServer,
		[]model.LoggingRule{envoy("", nil, model.BothSides)}, []model.LoggingRule{{Sides: model.BothSides, Disabled: on()}}))
	require.Equal(t, map[string]string{"other": ""}, get(model.SideServer,
		[]model.LoggingRule{envoy("", nil, model.BothSides)}, []model.LoggingRule{{Providers: []string{"other"}, Sides: model.BothSides}}))
	require.Equal(t, map[string]string{"envoy": "b"}, get(model.SideServer,
		[]model.LoggingRule{envoy("a", nil, model.BothSides)}, []model.LoggingRule{envoy("b", nil, model.BothSides)}))

	mesh.AccessLogFile = "/dev/stdout"
	require.Equal(t, map[string]string{"mesh": ""}, get(model.SideClient))
	require.Equal(t, none, get(model.SideClient, []model.LoggingRule{envoy("", on(), model.BothSides)}))
	mesh.Telemetry.Logging = []string{"other"}
	require.Equal(t, map[string]string{"other": ""}, get(model.SideClient))
}

// TestTracing: each rule changes what it names.
func TestTracing(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.Telemetry.Providers = append(mesh.Telemetry.Providers,
		model.Provider{Name: "otel", Kind: model.ProviderOpenTelemetry, Host: "otel.example.com", Port: 4317})
	var own model.ProxyTracing
	get := func(side model.Sides, list ...model.TracingRule) *ir.Tracing {
		v, _ := tracingOf([]*model.Telemetry{{Tracing: list}}, own.Over(&mesh.Telemetry), side)
		return v
	}
	require.Nil(t, get(model.SideClient), "off by default")
	require.Nil(t, get(model.SideClient, model.TracingRule{Provider: "envoy", Sides: model.BothSides}), "no tracer")
	five, none := 5., 0.
	got := get(model.SideClient, model.TracingRule{Provider: "otel", Sides: model.BothSides, Sampling: &five},
		model.TracingRule{Sides: model.SideClient, Tags: map[string]model.TraceTag{"a": {Literal: "x"}}, RequestID: off()})
	require.Equal(t, &ir.Tracing{
		Kind: model.ProviderOpenTelemetry, Sampling: 5, IstioTags: true,
		Tags: []ir.TraceTag{{Name: "a", TraceTag: model.TraceTag{Literal: "x"}}},
	}, got)
	mesh.Telemetry.Tracing = []string{"otel"}
	require.InDelta(t, 1, get(model.SideServer).Sampling, 0)
	require.InDelta(t, 0, get(model.SideServer, model.TracingRule{Sides: model.SideServer, Sampling: &none}).Sampling, 0)
	require.Nil(t, get(model.SideServer, model.TracingRule{Sides: model.SideServer, Disabled: on()}))
	require.NotNil(t, get(model.SideClient, model.TracingRule{Sides: model.SideServer, Disabled: on()}))
	mesh.Telemetry.NoIstioTags = true
	require.False(t, get(model.SideServer).IstioTags)
	require.True(t, get(model.SideServer, model.TracingRule{Sides: model.SideServer, IstioTags: on()}).IstioTags)

	own = `{"sampling":20,"maxPathTagLength":30,"customTags":{"b":{"literal":{"value":"y"}}}}`
	mesh.Telemetry.Tags = map[string]model.TraceTag{"of": {Literal: "mesh"}}
	tags := []ir.TraceTag{{Name: "b", TraceTag: model.TraceTag{Literal: "y"}}}
	require.Equal(t, &ir.Tracing{Kind: model.ProviderOpenTelemetry, Sampling: 20, MaxTagLength: 30, IstioTags: true, RequestID: true, Tags: tags},
		get(model.SideServer), "the Pod's go before the mesh's")
	got = get(model.SideServer, model.TracingRule{Sides: model.BothSides, Sampling: &five})
	require.InDelta(t, 5, got.Sampling, 0, "a Telemetry's go before the Pod's")
	require.Equal(t, tags, got.Tags)
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
