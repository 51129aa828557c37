package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// tracingState is the result of rules for one side's tracing.
type tracingState struct {
	provider      *model.Provider
	disabled      bool
	sampling      *float64
	tags          map[string]model.TraceTag
	requestID     bool
	istioTags     bool
	noPropagation bool
}

// tracingOf is the tracing of one side with its provider; nil: no spans are sent.
func tracingOf(rules []*model.Telemetry, defaults *model.MeshTelemetry, side model.Sides) (*ir.Tracing, *model.Provider) {
	s := &tracingState{requestID: true, istioTags: !defaults.NoIstioTags, provider: defaults.Collector}
	if len(defaults.Tracing) > 0 {
		s.provider = defaults.Provider(defaults.Tracing[0])
	}
	for _, t := range rules {
		for i := range t.Tracing {
			if t.Tracing[i].Sides&side != 0 {
				s.apply(&t.Tracing[i], defaults)
			}
		}
	}
	if s.disabled || s.provider == nil || !s.provider.Kind.IsTracing() {
		return nil, nil
	}
	return s.result(defaults), s.provider
}

func (s *tracingState) apply(r *model.TracingRule, mesh *model.MeshTelemetry) {
	if r.Provider != "" {
		s.provider = mesh.Provider(r.Provider)
	}
	override(&s.disabled, r.Disabled)
	override(&s.requestID, r.RequestID)
	override(&s.istioTags, r.IstioTags)
	override(&s.noPropagation, r.NoPropagation)
	s.sampling = cmp.Or(r.Sampling, s.sampling)
	if r.Tags != nil {
		s.tags = r.Tags
	}
}

func override(to, from *bool) {
	if from != nil {
		*to = *from
	}
}

func (s *tracingState) result(mesh *model.MeshTelemetry) *ir.Tracing {
	p := s.provider
	out := &ir.Tracing{
		Kind: p.Kind, Path: p.Path, Timeout: p.Timeout, Headers: p.Headers, ShortIDs: p.ShortIDs, W3C: p.W3C,
		Token: p.Token, MaxTagLength: cmp.Or(p.MaxTagLength, mesh.MaxTagLength), Sampling: cmp.Or(mesh.Sampling, mesh.BaseSampling),
		RequestID: s.requestID, IstioTags: s.istioTags, NoPropagation: s.noPropagation,
	}
	if s.sampling != nil {
		out.Sampling = *s.sampling
	}
	tags := s.tags
	if tags == nil {
		tags = mesh.Tags
	}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		out.Tags = append(out.Tags, ir.TraceTag{Name: name, TraceTag: tags[name]})
	}
	return out
}
