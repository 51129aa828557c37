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
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Telemetry decodes a Telemetry. It returns nil if the Telemetry can select no workload.
func Telemetry(in convert.Cluster, o *telemetryv1.Telemetry) (*model.Telemetry, problem.List) {
	c := telemetryConv{convert.Start(in, model.KindTelemetry, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	t := &model.Telemetry{Meta: c.Meta}
	t.Selector, t.Targets = policyConv(c).policyScope(spec)
	for i, m := range spec.Metrics {
		t.Metrics = append(t.Metrics, c.metricsRule(at.Field("metrics").Index(i), m))
	}
	for i, l := range spec.AccessLogging {
		t.Logging = append(t.Logging, c.loggingRule(at.Field("accessLogging").Index(i), l))
	}
	for i, r := range spec.Tracing {
		t.Tracing = append(t.Tracing, c.tracingRule(at.Field("tracing").Index(i), r))
	}
	if len(model.Selectors(t)) == 0 {
		return nil, c.Problems
	}
	return t, c.Problems
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

func (c telemetryConv) providerRefs(at problem.Path, list []*telemetry.ProviderRef) []string {
	var out []string
	for i, p := range list {
		if p.GetName() == "" {
			c.Errorf(code.MissingField, at.Index(i).Field("name"), "is missing; name one of the mesh's extensionProviders")
		}
		out = append(out, p.GetName())
	}
	return out
}

func (c telemetryConv) metricsRule(at problem.Path, m *telemetry.Metrics) model.MetricsRule {
	out := model.MetricsRule{Providers: c.providerRefs(at.Field("providers"), m.Providers)}
	if every := c.OptionalDuration(at.Field("reportingInterval"), m.ReportingInterval); every != nil {
		if out.Every = *every; out.Every < time.Millisecond {
			c.Errorf(code.InvalidDuration, at.Field("reportingInterval"), "%s is too short; use 1ms or more", out.Every)
		}
	}
	for i, o := range m.Overrides {
		if override, ok := c.metricOverride(at.Field("overrides").Index(i), o); ok {
			out.Overrides = append(out.Overrides, override)
		}
	}
	return out
}

// metricOverride is not ok for metrics that do not exist.
func (c telemetryConv) metricOverride(at problem.Path, o *telemetry.MetricsOverrides) (model.MetricOverride, bool) {
	out := model.MetricOverride{Sides: sides(o.GetMatch().GetMode())}
	switch m := o.GetMatch().GetMetricMatch().(type) {
	case *telemetry.MetricSelector_CustomMetric:
		c.Warnf(code.NoEffect, at.Field("match").Field("customMetric"), "%q has no effect: only Istio's standard metrics are made; use metric", m.CustomMetric)
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
		c.Warnf(code.NotSupported, at.Field("match").Field("metric"), "%s has no effect in Moonsail: messages of gRPC are not counted", out.Metric)
	}
	for _, name := range slices.Sorted(maps.Keys(o.TagOverrides)) {
		out.Tags = append(out.Tags, c.tagOverride(at.Field("tagOverrides").Key(name), name, o.TagOverrides[name]))
	}
	return out, true
}

var tagName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (c telemetryConv) tagOverride(at problem.Path, name string, o *telemetry.MetricsOverrides_TagOverride) model.TagOverride {
	out := model.TagOverride{Name: name, Remove: o.GetOperation() == telemetry.MetricsOverrides_TagOverride_REMOVE}
	if !tagName.MatchString(name) || strings.HasPrefix(name, "__") {
		c.Errorf(code.InvalidName, at, "%q is not a name of a label: use letters, digits and '_', and do not begin with a digit or with \"__\"", name)
	}
	switch value := o.GetValue(); {
	case out.Remove && value != "":
		c.Errorf(code.NotAllowedHere, at.Field("value"), "has no meaning for REMOVE; remove it, or make operation UPSERT")
	case !out.Remove && value == "":
		c.Errorf(code.MissingField, at.Field("value"), "is missing; set an expression, such as request.host or \"'text'\"")
	case !out.Remove:
		out.Format = c.expressionFormat(at.Field("value"), value)
	}
	return out
}

func (c telemetryConv) loggingRule(at problem.Path, l *telemetry.AccessLogging) model.LoggingRule {
	out := model.LoggingRule{
		Providers: c.providerRefs(at.Field("providers"), l.Providers), Sides: sides(l.GetMatch().GetMode()),
		Filter: l.GetFilter().GetExpression(),
	}
	if l.Disabled != nil {
		out.Disabled = &l.Disabled.Value
	}
	if l.Filter != nil {
		if err := cel.Check(out.Filter); err != nil {
			c.Errorf(code.InvalidExpression, at.Field("filter").Field("expression"), "%q is not an expression of CEL that Envoy takes: %v", out.Filter, err)
		} else if peer := peerIn(out.Filter); peer != "" {
			c.Errorf(code.InvalidExpression, at.Field("filter").Field("expression"), "%q would log no call: only Istio's own filters set %s; compare another attribute, such as connection.uri_san_peer_certificate", out.Filter, peer)
		}
	}
	return out
}

func (c telemetryConv) tracingRule(at problem.Path, r *telemetry.Tracing) model.TracingRule {
	out := model.TracingRule{Sides: sides(r.GetMatch().GetMode())}
	names := c.providerRefs(at.Field("providers"), r.Providers)
	if len(names) > 1 {
		c.Errorf(code.ListedTwice, at.Field("providers"), "names %d providers; keep one: spans go to one place", len(names))
	}
	if len(names) > 0 {
		out.Provider = names[0]
	}
	if s := r.RandomSamplingPercentage; s != nil {
		if s.Value < 0 || s.Value > 100 {
			c.Errorf(code.InvalidNumber, at.Field("randomSamplingPercentage"), "%v is not a percentage; use 0 to 100", s.Value)
		}
		out.Sampling = &s.Value
	}
	if b := r.DisableSpanReporting; b != nil {
		out.Disabled = &b.Value
	}
	if b := r.UseRequestIdForTraceSampling; b != nil {
		out.RequestID = &b.Value
	}
	if b := r.EnableIstioTags; b != nil {
		out.IstioTags = &b.Value
	}
	if b := r.DisableContextPropagation; b != nil {
		out.NoPropagation = &b.Value
	}
	out.Tags = c.traceTags(at.Field("customTags"), r.CustomTags)
	return out
}

func (c telemetryConv) traceTags(at problem.Path, tags map[string]*telemetry.Tracing_CustomTag) map[string]model.TraceTag {
	if tags == nil {
		return nil
	}
	out := make(map[string]model.TraceTag, len(tags))
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if name == "" {
			c.Errorf(code.MissingField, at, "a tag without a name cannot be set; add the name")
		}
		out[name] = c.traceTag(at.Key(name), tags[name])
	}
	return out
}

func (c telemetryConv) traceTag(at problem.Path, t *telemetry.Tracing_CustomTag) model.TraceTag {
	var out model.TraceTag
	required := func(field, value string) {
		if value == "" {
			c.Errorf(code.MissingField, at.Field(field), "is missing; a tag needs it")
		}
	}
	switch v := t.GetType().(type) {
	case *telemetry.Tracing_CustomTag_Literal:
		required("literal.value", v.Literal.GetValue())
		out.Literal = v.Literal.GetValue()
	case *telemetry.Tracing_CustomTag_Environment:
		required("environment.name", v.Environment.GetName())
		out.Environment, out.Default = v.Environment.GetName(), v.Environment.GetDefaultValue()
	case *telemetry.Tracing_CustomTag_Header:
		required("header.name", v.Header.GetName())
		out.Header, out.Default = v.Header.GetName(), v.Header.GetDefaultValue()
	case *telemetry.Tracing_CustomTag_Formatter:
		required("formatter.value", v.Formatter.GetValue())
		out.Format = v.Formatter.GetValue()
		c.checkFormat(at.Field("formatter.value"), out.Format)
	default:
		c.Errorf(code.MissingField, at, "has no value; set one of literal, environment, header and formatter")
	}
	return out
}

// attributeFormats are attributes that Envoy has command operators for. Those cost much less
// than CEL.
var attributeFormats = map[string]string{
	"request.host":                        "%REQ(:AUTHORITY)%",
	"request.method":                      "%REQ(:METHOD)%",
	"request.path":                        "%REQ(:PATH)%",
	"request.scheme":                      "%REQ(:SCHEME)%",
	"request.url_path":                    "%PATH(NQ)%",
	"request.protocol":                    "%PROTOCOL%",
	"request.useragent":                   "%REQ(USER-AGENT)%",
	"request.id":                          "%REQ(X-REQUEST-ID)%",
	"request.referer":                     "%REQ(REFERER)%",
	"response.code":                       "%RESPONSE_CODE%",
	"response.code_details":               "%RESPONSE_CODE_DETAILS%",
	"response.grpc_status":                "%GRPC_STATUS_NUMBER%",
	"source.address":                      "%DOWNSTREAM_REMOTE_ADDRESS%",
	"source.port":                         "%DOWNSTREAM_REMOTE_PORT%",
	"destination.address":                 "%DOWNSTREAM_LOCAL_ADDRESS%",
	"destination.port":                    "%DOWNSTREAM_LOCAL_PORT%",
	"connection.requested_server_name":    "%REQUESTED_SERVER_NAME%",
	"connection.tls_version":              "%DOWNSTREAM_TLS_VERSION%",
	"connection.uri_san_peer_certificate": "%DOWNSTREAM_PEER_URI_SAN%",
	"upstream.address":                    "%UPSTREAM_HOST%",
	"xds.cluster_name":                    "%UPSTREAM_CLUSTER_RAW%",
	"xds.route_name":                      "%ROUTE_NAME%",
}

var (
	headerAttribute = regexp.MustCompile(`^(request|response)\.headers\[\s*["']([A-Za-z0-9_-]+)["']\s*\]$`)
	literalText     = regexp.MustCompile(`^(?:"([^"\\%]*)"|'([^'\\%]*)')$`)
	asString        = regexp.MustCompile(`^string\(\s*([a-z_.]+)\s*\)$`)
	literalNumber   = regexp.MustCompile(`^[0-9]+$`)
)

// istioPeer finds the filter states with which Istio's own filters describe peers, in expressions and formats.
var istioPeer = regexp.MustCompile(`(?:FILTER_STATE\(|filter_state\s*(?:\.|\[\s*[rR]?["']))\s*((?:wasm\.)?(?:upstream|downstream)_peer)\b`)

// peerIn returns the filter state of a peer that an expression or a format reads; empty: none.
func peerIn(text string) string {
	if m := istioPeer.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// checkFormat checks a format of Envoy. One that reads what Istio's filters set has other parts, and stays.
func (c telemetryConv) checkFormat(at problem.Path, text string) {
	if err := envoyformat.Check(text); err != nil {
		c.Errorf(code.InvalidExpression, at, "%v", err)
	} else if peer := peerIn(text); peer != "" {
		c.Warnf(code.InvalidExpression, at, "%s has no value: only Istio's own filters set it; remove it from the format", peer)
	}
}

// expressionFormat writes an expression with Envoy's command operators.
func (c telemetryConv) expressionFormat(at problem.Path, text string) string {
	text = strings.TrimSpace(text)
	if m := asString.FindStringSubmatch(text); m != nil { // Envoy has no such function, but all labels are texts
		text = m[1]
	}
	if err := cel.Check(text); err != nil {
		c.Errorf(code.InvalidExpression, at, "%q is not an expression that Envoy takes: %v", text, err)
		return ""
	}
	if peer := peerIn(text); peer != "" {
		c.Errorf(code.InvalidExpression, at, "%q is always unknown: only Istio's own filters set %s; the labels source_* and destination_* name both workloads", text, peer)
	}
	if f, ok := attributeFormats[text]; ok {
		return f
	}
	if m := literalText.FindStringSubmatch(text); m != nil {
		return m[1] + m[2]
	}
	if literalNumber.MatchString(text) {
		return text
	}
	if m := headerAttribute.FindStringSubmatch(text); m != nil {
		return map[string]string{"request": "%REQ(", "response": "%RESP("}[m[1]] + m[2] + ")%"
	}
	if strings.ContainsAny(text, "%\n") {
		c.Errorf(code.InvalidExpression, at, "%q has a percent sign or a line break, which Envoy's formats do not allow inside an expression", text)
	}
	return "%CEL(" + text + ")%"
}
