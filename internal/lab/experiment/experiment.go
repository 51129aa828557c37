package experiment

import (
	"context"
	"time"
)

// Experiment is what is measured, and how.
type Experiment struct {
	Name  string // of the command: "throughput"
	Title string // of the report
	About string // what is measured, and how to read it: a paragraph
	Quick bool

	// Before makes what variants share, before the first of them starts; nil: there is nothing.
	// What it returns is called when all have been stopped.
	Before func(context.Context) (stop func(), err error)

	Metrics  []Metric
	Variants []Variant
	// Compare are the comparisons that the report makes, in its order.
	Compare []Pair
	Bars    []Bar
	Plots   []Plot
	Facts   []string // of the set-up: "Fortio 1.66.5, 64 connections"

	Rounds int // that are measured; one more warms up
	// Budget bounds the whole run. Rounds that would not end in time are left out.
	Budget time.Duration
	// Expect is what one round takes, for the time left until a round was measured.
	Expect time.Duration

	Version string // of Moonsail
	Envoy   string // path of the binary; empty: none is used

	// Finish adds to a report that is complete: notes, and charts. It may be nil.
	Finish func(*Report)

	Progress func(label string) // told what is being done, and the time left; may be nil
}

// Metric is one number of a sample.
type Metric struct {
	Name  string `json:"name"`  // key of samples: "qps"
	Title string `json:"title"` // column: "requests/s"
	Unit  string `json:"unit"`
	// Better says which way is good: "higher", "lower", or "" where neither is.
	Better string `json:"better,omitempty"`
	// Absolute: compared by difference, not by ratio.
	Absolute bool `json:"absolute,omitempty"`
	// Detail: not in the table on a terminal.
	Detail bool `json:"detail,omitempty"`
	// From says that it is not measured but computed, in each round; nil: it is measured.
	From *Derived `json:"from,omitempty"`
}

// Derived is a metric of a variant to that of a base, in the same round: the difference, or the
// ratio.
type Derived struct {
	Metric string `json:"metric"`
	Base   string `json:"base"` // a variant
	Ratio  bool   `json:"ratio,omitempty"`
}

// Which way is good.
const (
	Higher = "higher"
	Lower  = "lower"
)

// Sample is what one measurement has found, by the names of metrics. Metrics that a variant
// does not have are left out.
type Sample map[string]float64

// Variant is one of what is compared.
type Variant struct {
	Name  string // of the row: "both sidecars, mTLS, 2 workers"
	About string
	// Series and X place it in plots of lines: those of one series are joined, in order of X.
	Series string
	X      float64
	// Skip says why it cannot be measured here; the report says so, too. Empty: it can.
	Skip string
	// Start makes it ready. What it returns is stopped by Run.
	Start func(context.Context) (Subject, error)
}

// Subject is a variant that is ready.
type Subject interface {
	// Measure measures once. It must return soon after its context has ended.
	Measure(ctx context.Context, r Round) (Sample, error)
	Stop()
}

// Pauser is a Subject that takes CPU time while it is not measured: what its processes do on their own
// would be in the latencies of the others. It is paused from its start on, but for its measurements.
type Pauser interface {
	Subject
	Pause() error
	// Resume returns when it is as it was.
	Resume(ctx context.Context) error
}

// Round says which measurement this is.
type Round struct {
	Number  int // 0 warms up
	Warming bool
}

// Pair says that a variant is to be compared with a base in some metrics; none: in all.
type Pair struct {
	Variant, Base string
	Metrics       []string
}

// Bar is a limit of the plan: of the comparison of two variants in one metric, or, without a
// Base, of the variant's own median.
type Bar struct {
	What          string
	Metric        string
	Variant, Base string
	Limit         float64
	AtLeast       bool // else at most
}

// Plot is a picture of one metric: bars of medians with quartiles; or, with X, lines over the
// variants' X, one a series.
type Plot struct {
	Title    string   `json:"title"`
	About    string   `json:"about,omitempty"` // what it shows
	Metric   string   `json:"metric"`
	Variants []string `json:"variants,omitempty"` // empty: all that have the metric
	X        string   `json:"x,omitempty"`
	LogX     bool     `json:"log_x,omitempty"`
}

func (e *Experiment) progress(label string) {
	if e.Progress != nil {
		e.Progress(label)
	}
}
