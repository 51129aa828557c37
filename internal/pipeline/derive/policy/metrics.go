package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// metricsOf are the metrics of one side, merged as in Istio, and how often open connections report theirs.
func metricsOf(rules []*model.Telemetry, mesh *model.Mesh, side model.Sides) ([]ir.Metric, time.Duration) {
	var list []model.MetricsRule
	for _, t := range rules {
		list = append(list, t.Metrics...)
	}
	providers := mesh.Telemetry.Metrics
	for _, m := range list {
		if len(m.Providers) > 0 {
			providers = m.Providers
		}
	}
	for _, name := range providers {
		if p := mesh.Telemetry.Provider(name); p != nil && p.Kind == model.ProviderPrometheus {
			return mergeMetrics(list, mesh.Telemetry.Metrics, name, side)
		}
	}
	return nil, 0
}

// metricState is the result of rules for one metric.
type metricState struct {
	disabled bool
	tags     map[string]model.TagOverride
}

// mergeMetrics applies the rules for one provider. A rule without providers has those of the previous rule.
func mergeMetrics(list []model.MetricsRule, inherited []string, provider string, side model.Sides) ([]ir.Metric, time.Duration) {
	states, off, every := map[model.Metric]*metricState{}, false, model.DefaultReporting
	for _, m := range model.Metrics {
		states[m] = &metricState{tags: map[string]model.TagOverride{}}
	}
	for _, rule := range list {
		if len(rule.Providers) > 0 {
			inherited = rule.Providers
		}
		if !slices.Contains(inherited, provider) {
			continue
		}
		every = cmp.Or(rule.Every, every)
		for i := range rule.Overrides {
			if o := &rule.Overrides[i]; o.Sides&side != 0 {
				off = applyMetric(states, o)
			}
		}
	}
	if off {
		return nil, 0
	}
	return metricsIn(states), every
}

// applyMetric applies one override, and reports whether it turns everything off. As in Istio, any later override turns the
// rest on again.
func applyMetric(states map[model.Metric]*metricState, o *model.MetricOverride) bool {
	if o.Metric == "" && o.Disabled != nil && *o.Disabled {
		return true
	}
	for m, state := range states {
		if o.Metric != "" && o.Metric != m {
			continue
		}
		if o.Disabled != nil {
			state.disabled = *o.Disabled
		}
		for _, t := range o.Tags {
			state.tags[t.Name] = t
		}
	}
	return false
}

func metricsIn(states map[model.Metric]*metricState) []ir.Metric {
	var out []ir.Metric
	for _, m := range model.Metrics {
		state := states[m]
		if state.disabled {
			continue
		}
		v := ir.Metric{Metric: m}
		for _, name := range slices.Sorted(maps.Keys(state.tags)) {
			if t := state.tags[name]; t.Remove {
				v.Removed = append(v.Removed, name)
			} else {
				v.Tags = append(v.Tags, ir.MetricTag{Name: name, Format: t.Format})
			}
		}
		out = append(out, v)
	}
	return out
}
