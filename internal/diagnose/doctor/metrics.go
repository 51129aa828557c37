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

// Metrics are the metrics of a process at one moment, or the increase between two moments.
type Metrics map[string][]Series

// Series is one series of a metric.
type Series struct {
	Labels    map[string]string
	Value     float64    // value of a counter, a gauge, or an untyped metric
	Histogram *Histogram // nil: it is not a histogram
	counter   bool
}

// ParseMetrics reads Prometheus' text format.
func ParseMetrics(r io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("not Prometheus' text format: %w", err)
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

// Since returns the increase of counters and histograms after before, and the gauges as they are. If the
// process restarted, its counters count whole.
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

// Has reports whether there is a metric.
func (m Metrics) Has(name string) bool { return len(m[name]) > 0 }

// Sum adds up all series of a metric.
func (m Metrics) Sum(name string) (sum float64) {
	for i := range m[name] {
		sum += m[name][i].Value
	}
	return sum
}

// By adds up the series of a metric for each value of a label.
func (m Metrics) By(name, label string) map[string]float64 {
	out := map[string]float64{}
	for i := range m[name] {
		out[m[name][i].Labels[label]] += m[name][i].Value
	}
	return out
}

// Histogram merges all histograms of a metric; nil: there is none.
func (m Metrics) Histogram(name string) *Histogram {
	return m.HistogramBy(name, "")[""]
}

// HistogramBy merges the histograms of a metric for each value of a label.
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

// Histogram is a histogram in the unit of its metric.
type Histogram struct {
	Count, Sum float64
	upTo       map[float64]float64 // cumulative counts by upper bound
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

// minus subtracts an earlier histogram. If the earlier one has more observations, the result is the whole
// histogram.
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

// Mean returns the mean of the observations; 0: there are none.
func (h *Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return h.Sum / h.Count
}

// Quantile estimates the q-quantile, like Prometheus' histogram_quantile. Beyond the last bound it returns
// that bound, and more is set.
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
