package istio

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	telemetry "istio.io/api/telemetry/v1alpha1"
	telemetryv1 "istio.io/client-go/pkg/apis/telemetry/v1"

	"github.com/moonsail/moonsail/internal/config/cel"
	"github.com/moonsail/moonsail/internal/model"
)

// Telemetry decodes a Telemetry; nil for one that is for nobody.
func (d Decoder) Telemetry(o *telemetryv1.Telemetry) (*model.Telemetry, Problems) {
	c := d.start(model.KindTelemetry, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	t := &model.Telemetry{Meta: c.meta}
	t.Selector, t.Targets = c.policyScope(spec)
	for i, m := range spec.Metrics {
		t.Metrics = append(t.Metrics, c.metricsRule(at.f("metrics").i(i), m))
	}
	for i, l := range spec.AccessLogging {
		t.Logging = append(t.Logging, c.loggingRule(at.f("accessLogging").i(i), l))
	}
	for i, r := range spec.Tracing {
		t.Tracing = append(t.Tracing, c.tracingRule(at.f("tracing").i(i), r))
	}
	if len(model.Selectors(t)) == 0 {
		return nil, c.list
	}
	return t, c.list
}

func sides(m telemetry.WorkloadMode) model.Sides {
	switch m {
	case telemetry.WorkloadMode_CLIENT:
		return model.SideClient
	case telemetry.WorkloadMode_SERVER:
		return model.SideServer
	}
	return model.BothSides
}

func (c *conv) providerRefs(at path, list []*telemetry.ProviderRef) []string {
	var out []string
	for i, p := range list {
		if p.GetName() == "" {
			c.errorf(at.i(i).f("name"), "is missing; name one of the mesh's extensionProviders")
		}
		out = append(out, p.GetName())
	}
	return out
}

func (c *conv) metricsRule(at path, m *telemetry.Metrics) model.MetricsRule {
	out := model.MetricsRule{Providers: c.providerRefs(at.f("providers"), m.Providers)}
	if every := c.optionalDuration(at.f("reportingInterval"), m.ReportingInterval); every != nil {
		if out.Every = *every; out.Every < time.Millisecond {
			c.errorf(at.f("reportingInterval"), "%s is too short; give a millisecond at least", out.Every)
		}
	}
	for i, o := range m.Overrides {
		if override, ok := c.metricOverride(at.f("overrides").i(i), o); ok {
			out.Overrides = append(out.Overrides, override)
		}
	}
	return out
}

// metricOverride is not ok for metrics that nobody has.
func (c *conv) metricOverride(at path, o *telemetry.MetricsOverrides) (model.MetricOverride, bool) {
	out := model.MetricOverride{Sides: sides(o.GetMatch().GetMode())}
	switch m := o.GetMatch().GetMetricMatch().(type) {
	case *telemetry.MetricSelector_CustomMetric:
		c.warnf(at.f("match").f("customMetric"), "%q has no effect: only Istio's standard metrics are made; use metric", m.CustomMetric)
		return out, false
	case *telemetry.MetricSelector_Metric:
		if m.Metric != telemetry.MetricSelector_ALL_METRICS {
			out.Metric = model.Metric(m.Metric.String())
		}
	}
	if o.Disabled != nil {
		out.Disabled = &o.Disabled.Value
	}
	messages := out.Metric == model.MetricRequestMessages || out.Metric == model.MetricResponseMessages
	if off := out.Disabled != nil && *out.Disabled; messages && !off {
		c.warnf(at.f("match").f("metric"), "%s has no effect in Moonsail: messages of gRPC are not counted", out.Metric)
	}
	for _, name := range slices.Sorted(maps.Keys(o.TagOverrides)) {
		out.Tags = append(out.Tags, c.tagOverride(at.f("tagOverrides").k(name), name, o.TagOverrides[name]))
	}
	return out, true
}

var tagName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (c *conv) tagOverride(at path, name string, o *telemetry.MetricsOverrides_TagOverride) model.TagOverride {
	out := model.TagOverride{Name: name, Remove: o.GetOperation() == telemetry.MetricsOverrides_TagOverride_REMOVE}
	if !tagName.MatchString(name) || strings.HasPrefix(name, "__") {
		c.errorf(at, "%q is not a name of a label: use letters, digits and '_', and do not begin with a digit or with \"__\"", name)
	}
	switch value := o.GetValue(); {
	case out.Remove && value != "":
		c.errorf(at.f("value"), "has no meaning for REMOVE; remove it, or make operation UPSERT")
	case !out.Remove && value == "":
		c.errorf(at.f("value"), "is missing; give an expression, such as request.host or \"'text'\"")
	case !out.Remove:
		out.Format = c.expressionFormat(at.f("value"), value)
	}
	return out
}

func (c *conv) loggingRule(at path, l *telemetry.AccessLogging) model.LoggingRule {
	out := model.LoggingRule{
		Providers: c.providerRefs(at.f("providers"), l.Providers), Sides: sides(l.GetMatch().GetMode()),
		Filter: l.GetFilter().GetExpression(),
	}
	if l.Disabled != nil {
		out.Disabled = &l.Disabled.Value
	}
	if l.Filter != nil {
		if err := cel.Check(out.Filter); err != nil {
			c.errorf(at.f("filter").f("expression"), "%q is not an expression of CEL that Envoy takes: %v", out.Filter, err)
		}
	}
	return out
}
