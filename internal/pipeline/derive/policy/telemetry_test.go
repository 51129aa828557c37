package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

func on() *bool { v := true; return &v }

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

// TestMetrics checks that later rules override earlier ones, separately for each side.
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
	require.Equal(t, 3*time.Second, every(second, third, override()), "the last one that is set")
	require.Equal(t, 2*time.Second, every(second, model.MetricsRule{Providers: []string{"missing"}, Every: time.Second}, model.MetricsRule{Providers: []string{"prometheus"}}))
	require.Equal(t, model.Metrics, names(get(model.SideClient)), "on by default")
	require.Empty(t, get(model.SideClient, model.MetricsRule{Providers: []string{"missing"}}))
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

// TestLogs checks that the last Telemetry that names providers selects them.
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
	file := map[string]string{"mesh": ""}
	require.Equal(t, file, get(model.SideClient, []model.LoggingRule{envoy("a", nil, model.SideServer)}), "the rule is for the other side")
	require.Equal(t, map[string]string{"envoy": "a"}, get(model.SideServer, []model.LoggingRule{envoy("a", nil, model.SideServer)}))
	require.Equal(t, file, get(model.SideClient, []model.LoggingRule{{Providers: []string{"missing"}, Sides: model.BothSides}}))
	disabling := model.LoggingRule{Sides: model.BothSides, Disabled: on()}
	require.Equal(t, none, get(model.SideClient, []model.LoggingRule{disabling}), "a rule without providers switches the file off")
	require.Equal(t, file, get(model.SideClient, []model.LoggingRule{disabling}, []model.LoggingRule{{Sides: model.BothSides}}))
	require.Equal(t, file, get(model.SideClient, []model.LoggingRule{{Sides: model.SideServer, Disabled: on()}}))
	require.Equal(t, none, get(model.SideServer, []model.LoggingRule{
		envoy("", nil, model.SideClient), {Sides: model.SideServer, Disabled: on()},
	}), "the provider is for the other side")
	missing := []model.LoggingRule{{Providers: []string{"missing"}, Sides: model.BothSides}}
	require.Equal(t, none, get(model.SideClient, missing, []model.LoggingRule{disabling}))
	mesh.Telemetry.Logging = []string{"missing"}
	require.Equal(t, file, get(model.SideClient))
	require.Equal(t, none, get(model.SideClient, []model.LoggingRule{disabling}), "the mesh has no such default provider")
	mesh.Telemetry.Logging = []string{"other"}
	require.Equal(t, map[string]string{"other": ""}, get(model.SideClient))
	require.Equal(t, none, get(model.SideClient, []model.LoggingRule{disabling}))
}

// TestTracing checks that each rule changes only what it names.
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
	for _, share := range []float64{0, 100} {
		mesh.Telemetry.BaseSampling = share
		require.InDelta(t, share, get(model.SideServer).Sampling, 0)
		mesh.Telemetry.Sampling = 30
		require.InDelta(t, 30, get(model.SideServer).Sampling, 0)
		own = `{}`
		require.InDelta(t, share, get(model.SideServer).Sampling, 0, "the Pod's tracing replaces the mesh's")
		own, mesh.Telemetry.Sampling = "", 0
	}
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
