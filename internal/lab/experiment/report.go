package experiment

import (
	"fmt"
	"slices"
)

// Schema is the version of Report's JSON form. It increases with incompatible changes.
const Schema = 2

// Report is the result of a run and the content of report.json, the same for all experiments. Conclude computes
// summaries, comparisons and targets from the samples.
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
	Rounds      int      `json:"rounds"`            // complete rounds
	Stopped     string   `json:"stopped,omitempty"` // why it ended early; empty: it did not
	Notes       []string `json:"notes,omitempty"`

	Metrics     []Metric       `json:"metrics"`
	Variants    []Result       `json:"variants"`
	Comparisons []Comparison   `json:"comparisons,omitempty"`
	Targets     []TargetResult `json:"targets,omitempty"`
	Plots       []Plot         `json:"plots,omitempty"`
	Charts      []Chart        `json:"charts,omitempty"` // added by the experiment
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

// Summary summarizes the samples of a metric.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"` // quartiles
	Q3     float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Comparison compares a variant's metric with the base's, round by round: as a ratio, or, if the metric is absolute, as
// a difference.
type Comparison struct {
	Metric  string  `json:"metric"`
	Variant string  `json:"variant"`
	Base    string  `json:"base"`
	N       int     `json:"n"` // rounds that have both
	Median  float64 `json:"median"`
	// The interval from Low to High contains the true median with this confidence, 0 to 1.
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
	Verdict    string  `json:"verdict"`
}

// Verdicts of comparisons and targets.
const (
	IsHigher    = "higher"
	IsLower     = "lower"
	WithinNoise = "within noise"   // the interval contains "no difference", or the limit
	TooFew      = "too few rounds" // for an interval with enough confidence
	NotMeasured = "not measured"
	Met         = "met"
	Missed      = "missed"
)

// TargetResult is a target, the measured value, and whether the target is met.
type TargetResult struct {
	What       string  `json:"what"`
	Metric     string  `json:"metric"`
	Variant    string  `json:"variant"`
	Base       string  `json:"base,omitempty"`
	Limit      float64 `json:"limit"`
	AtLeast    bool    `json:"at_least"` // false: at most
	Value      float64 `json:"value"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"`
	Met        bool    `json:"met"`
	Verdict    string  `json:"verdict"` // includes uncertainty
}

// Chart is a picture of values that are not one metric: lines, or bars if there are no lines.
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

// Variant finds a result by name, or returns nil.
func (r *Report) Variant(name string) *Result {
	if i := slices.IndexFunc(r.Variants, func(v Result) bool { return v.Name == name }); i >= 0 {
		return &r.Variants[i]
	}
	return nil
}

// Held counts the targets that are met, and all targets.
func (r *Report) Held() (n [2]int) {
	for _, b := range r.Targets {
		if n[1]++; b.Met {
			n[0]++
		}
	}
	return n
}

// HasDetails reports whether there are metrics that are not in the first table.
func (r *Report) HasDetails() bool {
	return slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Detail })
}
