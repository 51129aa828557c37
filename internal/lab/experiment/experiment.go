package experiment

import (
	"context"
	"time"
)

// Experiment describes what to measure, and how.
type Experiment struct {
	Name  string // of the command, for example "throughput"
	Title string // of the report
	About string // a paragraph: what is measured, and how to read it
	Quick bool

	// Before prepares what variants share, before the first of them starts. stop is called after all have been
	// stopped. Before may be nil.
	Before func(context.Context) (stop func(), err error)

	Metrics  []Metric
	Variants []Variant
	// Compare lists the comparisons of the report, in order.
	Compare []Pair
	Targets []Target
	Plots   []Plot
	Facts   []string // about the set-up, for example "Fortio 1.66.5, 64 connections"

	Rounds int // to measure, in addition to the warm-up
	// Budget limits the time of the run. Rounds that do not fit are left out.
	Budget time.Duration
	// Expect estimates one round. It is used until the first round was measured.
	Expect time.Duration

	Version string // of Moonsail
	Envoy   string // path of the binary; empty: the experiment uses none

	// Finish adds notes and charts to the complete report. It may be nil.
	Finish func(*Report)

	Progress func(label string) // is called with the current step and the time left; may be nil
}

// Metric is one number of a sample.
type Metric struct {
	Name  string `json:"name"`  // key of samples: "qps"
	Title string `json:"title"` // column: "requests/s"
	Unit  string `json:"unit"`
	// Better is "higher", "lower", or "" if neither is better.
	Better string `json:"better,omitempty"`
	// Absolute compares by difference, not by ratio.
	Absolute bool `json:"absolute,omitempty"`
	// Detail leaves the metric out of the table on a terminal.
	Detail bool `json:"detail,omitempty"`
	// From computes the metric in each round; nil: it is measured.
	From *Derived `json:"from,omitempty"`
}

// Derived compares a metric of a variant with that of a base in the same round: by difference, or by ratio.
type Derived struct {
	Metric string `json:"metric"`
	Base   string `json:"base"` // a variant
	Ratio  bool   `json:"ratio,omitempty"`
}

// Values of Metric.Better.
const (
	Higher = "higher"
	Lower  = "lower"
)

// Sample is the result of one measurement, by names of metrics. Metrics that a variant does not have are absent.
type Sample map[string]float64

// Variant is one of the configurations that an experiment compares.
type Variant struct {
	Name  string // of the row, for example "both sidecars, mTLS, 2 workers"
	About string
	// Series and X place the variant in plots of lines. A line joins the variants of one series in order of X.
	Series string
	X      float64
	// Skip is the reason why the variant cannot be measured here, for the report. Empty: it can.
	Skip string
	// Start prepares the variant. Run stops the Subject.
	Start func(context.Context) (Subject, error)
}

// Subject is a started variant.
type Subject interface {
	// Measure measures once. It must return soon after the end of its context.
	Measure(ctx context.Context, r Round) (Sample, error)
	Stop()
}

// Pauser is a Subject whose processes use CPU time between measurements, which would increase the latencies of the
// other subjects. It is paused from its start on, except during its measurements.
type Pauser interface {
	Subject
	Pause() error
	// Resume returns when the subject is in its former state.
	Resume(ctx context.Context) error
}

// Round identifies a measurement.
type Round struct {
	Number  int // 0: the warm-up
	Warming bool
}

// Pair compares a variant with a base in some metrics, or in all if none are given.
type Pair struct {
	Variant, Base string
	Metrics       []string
}

// Target is a limit for the comparison of two variants in one metric, or, without a Base, for the variant's median.
type Target struct {
	What          string
	Metric        string
	Variant, Base string
	Limit         float64
	AtLeast       bool // false: at most
}

// Plot is a picture of one metric: bars of medians with quartiles, or, with X, a line for each series over the
// variants' X.
type Plot struct {
	Title    string   `json:"title"`
	About    string   `json:"about,omitempty"` // caption
	Metric   string   `json:"metric"`
	Variants []string `json:"variants,omitempty"` // empty: all with the metric
	X        string   `json:"x,omitempty"`
	LogX     bool     `json:"log_x,omitempty"`
}

func (e *Experiment) progress(label string) {
	if e.Progress != nil {
		e.Progress(label)
	}
}
