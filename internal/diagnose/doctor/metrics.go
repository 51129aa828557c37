package doctor

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are a process's, as it told them to a scraper at one moment, or what was added between two.
type Metrics map[string][]Series

// Series is one of a metric's.
type Series struct {
	Labels    map[string]string
	Value     float64    // of a counter, a gauge, or one of no type
	Histogram *Histogram // nil: it is none
	counter   bool
}

// ParseMetrics reads Prometheus' text format.
func ParseMetrics(r io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("these are not metrics in Prometheus' text format: %w", err)
	}
	m := Metrics{}
	for name, f := range families {
		for _, one := range f.GetMetric() {
			s := Series{Labels: map[string]string{}, counter: f.GetType() == dto.MetricType_COUNTER}
			for _, l := range one.GetLabel() {
				s.Labels[l.GetName()] = l.GetValue()
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				s.Histogram = histogramOf(one.GetHistogram())
			case dto.MetricType_COUNTER:
				s.Value = one.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				s.Value = one.GetGauge().GetValue()
			default:
				s.Value = one.GetUntyped().GetValue()
			}
			m[name] = append(m[name], s)
		}
	}
	return m, nil
}

// Since is what counters and histograms counted after before; gauges are as they are. A process that was started
// anew has counted all that it tells.
func (m Metrics) Since(before Metrics) Metrics {
	out := Metrics{}
	for name, list := range m {
		earlier := map[string]*Series{}
		for i := range before[name] {
			earlier[before[name][i].key()] = &before[name][i]
		}
		for _, s := range list {
			if e := earlier[s.key()]; e != nil {
				s.subtract(e)
			}
			out[name] = append(out[name], s)
		}
	}
	return out
}

func (s *Series) key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		fmt.Fprintf(&b, "%q=%q,", name, s.Labels[name])
	}
	return b.String()
}

func (s *Series) subtract(e *Series) {
	switch {
	case s.Histogram != nil && e.Histogram != nil:
		s.Histogram = s.Histogram.minus(e.Histogram)
	case s.counter && s.Value >= e.Value:
		s.Value -= e.Value
	}
}

// Has tells whether there is a metric.
func (m Metrics) Has(name string) bool { return len(m[name]) > 0 }

// Sum adds all of a metric's series up.
func (m Metrics) Sum(name string) (sum float64) {
	for i := range m[name] {
		sum += m[name][i].Value
	}
	return sum
}

// By adds a metric's series up for each value of a label.
func (m Metrics) By(name, label string) map[string]float64 {
	out := map[string]float64{}
	for i := range m[name] {
		out[m[name][i].Labels[label]] += m[name][i].Value
	}
	return out
}

// Histogram is all of a metric's histograms in one; nil: there is none.
func (m Metrics) Histogram(name string) *Histogram {
	return m.HistogramBy(name, "")[""]
}

// HistogramBy are a metric's histograms, in one for each value of a label.
func (m Metrics) HistogramBy(name, label string) map[string]*Histogram {
	out := map[string]*Histogram{}
	for i := range m[name] {
		s := &m[name][i]
		if s.Histogram == nil {
			continue
		}
		value := s.Labels[label]
		if out[value] == nil {
			out[value] = &Histogram{}
		}
		out[value] = out[value].plus(s.Histogram)
	}
	return out
}

// Histogram is what was observed, in the unit of its metric.
type Histogram struct {
	Count, Sum float64
	upTo       map[float64]float64 // observations by upper bound, each with those below
}

func histogramOf(h *dto.Histogram) *Histogram {
	out := &Histogram{Count: float64(h.GetSampleCount()), Sum: h.GetSampleSum(), upTo: map[float64]float64{}}
	for _, b := range h.GetBucket() {
		out.upTo[b.GetUpperBound()] = float64(b.GetCumulativeCount())
	}
	return out
}

func (h *Histogram) plus(o *Histogram) *Histogram {
	out := &Histogram{Count: h.Count + o.Count, Sum: h.Sum + o.Sum, upTo: map[float64]float64{}}
	maps.Copy(out.upTo, h.upTo)
	for bound, n := range o.upTo {
		out.upTo[bound] += n
	}
	return out
}

// minus is what was observed after o; all, where less was than then.
func (h *Histogram) minus(o *Histogram) *Histogram {
	if h.Count < o.Count {
		return h
	}
	out := &Histogram{Count: h.Count - o.Count, Sum: h.Sum - o.Sum, upTo: map[float64]float64{}}
	for bound, n := range h.upTo {
		out.upTo[bound] = n - o.upTo[bound]
	}
	return out
}

// Mean of the observations; 0 of none.
func (h *Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return h.Sum / h.Count
}

// Quantile is about where the share q of the observations ends, as Prometheus' histogram_quantile has it. Beyond the
// last bound that bound is told, and that it is more.
func (h *Histogram) Quantile(q float64) (value float64, more bool) {
	rank, below, lower := q*h.Count, 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(h.upTo)) {
		n := h.upTo[upper]
		if n < rank {
			below, lower = n, upper
			continue
		}
		if math.IsInf(upper, 1) {
			break
		}
		if n == below {
			return upper, false
		}
		return lower + (upper-lower)*(rank-below)/(n-below), false
	}
	return lower, h.Count > 0
}
