package istio

import (
	"maps"
	"slices"

	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
)

func (c *conv) tracingRule(at path, r *telemetry.Tracing) model.TracingRule {
	out := model.TracingRule{Sides: sides(r.GetMatch().GetMode())}
	names := c.providerRefs(at.f("providers"), r.Providers)
	if len(names) > 1 {
		c.errorf(at.f("providers"), "names %d providers; keep one: spans go to one place", len(names))
	}
	if len(names) > 0 {
		out.Provider = names[0]
	}
	if s := r.RandomSamplingPercentage; s != nil {
		if s.Value < 0 || s.Value > 100 {
			c.errorf(at.f("randomSamplingPercentage"), "%v is not a percentage; use 0 to 100", s.Value)
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
	out.Tags = c.traceTags(at.f("customTags"), r.CustomTags)
	return out
}

func (c *conv) traceTags(at path, tags map[string]*telemetry.Tracing_CustomTag) map[string]model.TraceTag {
	if tags == nil {
		return nil
	}
	out := make(map[string]model.TraceTag, len(tags))
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if name == "" {
			c.errorf(at, "a tag without a name cannot be set; give it a name")
		}
		out[name] = c.traceTag(at.k(name), tags[name])
	}
	return out
}

func (c *conv) traceTag(at path, t *telemetry.Tracing_CustomTag) model.TraceTag {
	var out model.TraceTag
	required := func(field, value string) {
		if value == "" {
			c.errorf(at.f(field), "is missing; a tag needs it")
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
		if err := envoyformat.Check(out.Format); err != nil {
			c.errorf(at.f("formatter.value"), "%v", err)
		}
	default:
		c.errorf(at, "has no value; give one of literal, environment, header and formatter")
	}
	return out
}
