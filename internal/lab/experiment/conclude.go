package experiment

import "slices"

// Conclude computes summaries, comparisons and targets from the samples.
func (r *Report) Conclude() {
	for i := range r.Variants {
		v := &r.Variants[i]
		v.Summary = map[string]Summary{}
		for _, m := range r.Metrics {
			if s := v.values(m.Name); len(s) > 0 {
				v.Summary[m.Name] = SummaryOf(s)
			}
		}
	}
	for i := range r.Comparisons {
		r.compare(&r.Comparisons[i])
	}
	for i := range r.Targets {
		r.hold(&r.Targets[i])
	}
}

// values returns a metric's samples, in the order of rounds.
func (v *Result) values(metric string) (out []float64) {
	for _, s := range v.Samples {
		if x, ok := s[metric]; ok {
			out = append(out, x)
		}
	}
	return out
}

func comparisonsOf(p Pair, metrics []Metric) (out []Comparison) {
	for _, m := range metrics {
		if len(p.Metrics) == 0 || slices.Contains(p.Metrics, m.Name) {
			out = append(out, Comparison{Metric: m.Name, Variant: p.Variant, Base: p.Base})
		}
	}
	return out
}

// paired compares a variant's samples with the base's, round by round.
func (r *Report) paired(metric, variant, base string) (out []float64) {
	a, b := r.Variant(variant), r.Variant(base)
	if a == nil || b == nil {
		return nil
	}
	absolute := r.Metric(metric).Absolute
	for i := range min(len(a.Samples), len(b.Samples)) {
		x, ok1 := a.Samples[i][metric]
		y, ok2 := b.Samples[i][metric]
		switch {
		case !ok1 || !ok2 || !absolute && y == 0:
		case absolute:
			out = append(out, x-y)
		default:
			out = append(out, x/y)
		}
	}
	return out
}

// Same is the value of a comparison without a difference.
func (m Metric) Same() float64 {
	if m.Absolute {
		return 0
	}
	return 1
}

func (r *Report) compare(c *Comparison) {
	values := r.paired(c.Metric, c.Variant, c.Base)
	c.N, c.Median = len(values), Median(values)
	c.Low, c.High, c.Confidence = Interval(values)
	c.Verdict = Verdict(c.N, c.Low, c.High, c.Confidence, r.Metric(c.Metric).Same())
}

// Verdict compares an interval, found from n numbers, with a value.
func Verdict(n int, low, high, confidence, at float64) string {
	switch {
	case n == 0:
		return NotMeasured
	case low <= at && at <= high:
		return WithinNoise
	case confidence < Confidence:
		return TooFew
	case low > at:
		return IsHigher
	}
	return IsLower
}

func (r *Report) hold(b *TargetResult) {
	var values []float64
	if b.Base != "" {
		values = r.paired(b.Metric, b.Variant, b.Base)
	} else if v := r.Variant(b.Variant); v != nil {
		values = v.values(b.Metric)
	}
	b.Value = Median(values)
	b.Low, b.High, b.Confidence = Interval(values)
	b.Met = len(values) > 0 && (b.Value == b.Limit || b.Value > b.Limit == b.AtLeast)
	switch b.Verdict = Verdict(len(values), b.Low, b.High, b.Confidence, b.Limit); {
	case b.Verdict == WithinNoise && b.surely() && b.Confidence < Confidence:
		b.Verdict = TooFew
	case b.Verdict == WithinNoise && b.surely():
		b.Verdict = Met
	case b.Verdict != IsHigher && b.Verdict != IsLower:
	case b.Met:
		b.Verdict = Met
	default:
		b.Verdict = Missed
	}
}

// surely reports whether the whole interval is on the good side of the limit, which it may touch.
func (b *TargetResult) surely() bool {
	return b.AtLeast && b.Low == b.Limit || !b.AtLeast && b.High == b.Limit
}
