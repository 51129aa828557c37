package experiment

import (
	"fmt"
	"slices"
)

// Schema is the version of Report's form; it grows with what readers must know of.
const Schema = 1

// Report is what a run has found: the content of report.json, of all experiments alike. All
// from Summary on is made from the samples by Conclude.
type Report struct {
	Schema      int      `json:"schema"`
	Experiment  string   `json:"experiment"`
	Title       string   `json:"title"`
	About       string   `json:"about,omitempty"`
	Begun       string   `json:"begun"` // RFC 3339
	Took        float64  `json:"took_s"`
	Budget      float64  `json:"budget_s"`
	Version     string   `json:"version"` // of Moonsail
	Quick       bool     `json:"quick"`
	Machine     Machine  `json:"machine"`
	Facts       []string `json:"facts,omitempty"`
	RoundsAsked int      `json:"rounds_asked"`
	Rounds      int      `json:"rounds"`            // that were complete
	Stopped     string   `json:"stopped,omitempty"` // why there is no more, where it ended early
	Notes       []string `json:"notes,omitempty"`

	Metrics     []Metric     `json:"metrics"`
	Variants    []Result     `json:"variants"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
	Bars        []Limit      `json:"bars,omitempty"`
	Plots       []Plot       `json:"plots,omitempty"`
	Charts      []Chart      `json:"charts,omitempty"` // which an experiment has added
}

// Result is a variant and its samples.
type Result struct {
	Name    string  `json:"name"`
	About   string  `json:"about,omitempty"`
	Series  string  `json:"series,omitempty"`
	X       float64 `json:"x,omitempty"`
	Skipped string  `json:"skipped,omitempty"` // why it was not measured
	// Samples are those of each complete round, in their order.
	Samples []Sample           `json:"samples"`
	Summary map[string]Summary `json:"summary,omitempty"` // by metric
}

// Summary is a metric's samples in a few numbers.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"` // quartiles
	Q3     float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Comparison is a variant's metric to the base's, round by round: a ratio, or where the metric
// is absolute a difference.
type Comparison struct {
	Metric  string  `json:"metric"`
	Variant string  `json:"variant"`
	Base    string  `json:"base"`
	N       int     `json:"n"` // rounds that have both
	Median  float64 `json:"median"`
	// Low to High holds the true median with this confidence, 0 to 1.
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
	Verdict    string  `json:"verdict"`
}

// Verdicts of comparisons and bars.
const (
	IsHigher    = "higher"
	IsLower     = "lower"
	WithinNoise = "within noise"   // no difference, or the limit, lies in the interval
	TooFew      = "too few rounds" // for any confidence
	NotMeasured = "not measured"
	Holds       = "holds"
	Missed      = "missed"
)

// Limit is a bar of the plan, what was measured, and whether it holds.
type Limit struct {
	What       string  `json:"what"`
	Metric     string  `json:"metric"`
	Variant    string  `json:"variant"`
	Base       string  `json:"base,omitempty"`
	Limit      float64 `json:"limit"`
	AtLeast    bool    `json:"at_least"` // else at most
	Value      float64 `json:"value"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
	Holds      bool    `json:"holds"`
	Verdict    string  `json:"verdict"` // also where it is not sure
}

// Chart is a picture that is not of one metric: lines, or bars where there are no lines.
type Chart struct {
	Title string      `json:"title"`
	About string      `json:"about,omitempty"`
	X     string      `json:"x,omitempty"`
	Y     string      `json:"y"` // the unit
	Lines []ChartLine `json:"lines,omitempty"`
	Bars  []ChartBar  `json:"bars,omitempty"`
	Names []string    `json:"names,omitempty"` // of the values of bars
}

// ChartLine is one of a chart's lines.
type ChartLine struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

// ChartBar is a group of bars.
type ChartBar struct {
	Label  string    `json:"label"`
	Values []float64 `json:"values"`
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Metric finds a metric by name.
func (r *Report) Metric(name string) Metric {
	for _, m := range r.Metrics {
		if m.Name == name {
			return m
		}
	}
	return Metric{Name: name, Title: name}
}

// Variant finds a result by name; nil: there is none.
func (r *Report) Variant(name string) *Result {
	if i := slices.IndexFunc(r.Variants, func(v Result) bool { return v.Name == name }); i >= 0 {
		return &r.Variants[i]
	}
	return nil
}

// Held counts the bars: those that hold, and all.
func (r *Report) Held() (n [2]int) {
	for _, b := range r.Bars {
		if n[1]++; b.Holds {
			n[0]++
		}
	}
	return n
}

// HasDetails tells whether there are metrics that are not in the first table.
func (r *Report) HasDetails() bool {
	return slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Detail })
}
