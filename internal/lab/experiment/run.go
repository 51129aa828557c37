package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// stopTime is the part of the budget for stopping subjects and for writing.
const stopTime = 5 * time.Second

// run is an experiment in progress. Only one goroutine uses it.
type run struct {
	*Experiment
	report   *Report
	subjects []Subject // by variant; nil: skipped
	begun    time.Time
	round    time.Duration // duration of the last one
}

// Run measures. The report has all complete rounds, also if an error ended the run early.
func Run(ctx context.Context, e *Experiment) (*Report, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	r := &run{Experiment: e, begun: time.Now(), round: e.Expect, subjects: make([]Subject, len(e.Variants))}
	r.report = r.begin(ctx)
	err := r.measure(ctx)
	r.report.Machine.LoadAfter = LoadAverage()
	r.report.Took = time.Since(r.begun).Seconds()
	if err != nil {
		r.report.Stopped = err.Error()
	}
	r.report.Conclude()
	if e.Finish != nil {
		e.Finish(r.report)
	}
	return r.report, err
}

// check reports invalid experiments.
func (e *Experiment) check() error {
	names := func(in string) error {
		if !slices.ContainsFunc(e.Variants, func(v Variant) bool { return v.Name == in }) {
			return fmt.Errorf("experiment %s: unknown variant %q", e.Name, in)
		}
		return nil
	}
	var errs []error
	for _, p := range e.Compare {
		errs = append(errs, names(p.Variant), names(p.Base))
	}
	for _, b := range e.Targets {
		if errs = append(errs, names(b.Variant)); b.Base != "" {
			errs = append(errs, names(b.Base))
		}
	}
	for _, m := range e.Metrics {
		if m.From != nil {
			errs = append(errs, names(m.From.Base))
		}
	}
	if e.Rounds < 1 || e.Budget <= 0 {
		errs = append(errs, fmt.Errorf("experiment %s: no rounds, or no time", e.Name))
	}
	return errors.Join(errs...)
}

func (r *run) begin(ctx context.Context) *Report {
	out := &Report{
		Schema: Schema, Experiment: r.Name, Title: r.Title, About: r.About, Begun: r.begun.Format(time.RFC3339),
		Version: r.Version, Quick: r.Quick, Machine: ThisMachine(ctx, r.Envoy), Facts: r.Facts, RoundsAsked: r.Rounds,
		Budget: r.Budget.Seconds(), Metrics: r.Metrics, Plots: r.Plots,
	}
	for _, v := range r.Variants {
		out.Variants = append(out.Variants, Result{Name: v.Name, About: v.About, Series: v.Series, X: v.X, Skipped: v.Skip, Samples: []Sample{}})
	}
	for _, p := range r.Compare {
		out.Comparisons = append(out.Comparisons, comparisonsOf(p, r.Metrics)...)
	}
	for _, b := range r.Targets {
		out.Targets = append(out.Targets, TargetResult{What: b.What, Metric: b.Metric, Variant: b.Variant, Base: b.Base, Limit: b.Limit, AtLeast: b.AtLeast})
	}
	return out
}

// measure runs all rounds within the budget. Subjects are stopped before it returns.
func (r *run) measure(ctx context.Context) error {
	ctx, cancel := context.WithDeadlineCause(ctx, r.begun.Add(r.Budget-stopTime), errBudget)
	defer cancel()
	if r.Before != nil {
		r.progress("starting")
		stop, err := r.Before(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	defer r.stop()
	if err := r.start(ctx); err != nil {
		return err
	}
	for n := range r.Rounds + 1 { // round 0 warms up
		if n > 1 && r.left() < r.round {
			r.report.note("%d of %d rounds were measured: another one takes %s, but only %[5]s of the budget of %[4]s was left",
				n-1, r.Rounds, r.round.Round(time.Second), r.Budget, r.left().Round(time.Second))
			return nil
		}
		if err := r.one(ctx, n); err != nil {
			return r.cut(ctx, n, err)
		}
	}
	return nil
}

// errBudget ends a round that takes longer than the ones before it.
var errBudget = errors.New("time budget spent")

// cut decides what a failed round means: if only its time was over, and others are complete, the run is shorter and has
// no error.
func (r *run) cut(ctx context.Context, n int, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, errBudget) && r.report.Rounds > 0:
		r.report.note("round %d of %d did not end within the budget of %s and is left out", n, r.Rounds, r.Budget)
		return nil
	case errors.Is(cause, errBudget):
		return fmt.Errorf("%w: no round was complete within %s: one takes at least %s, and the first is a warm-up", cause, r.Budget, r.round.Round(time.Second))
	default:
		return cause
	}
}

// left returns the rest of the budget.
func (r *run) left() time.Duration { return time.Until(r.begun.Add(r.Budget - stopTime)) }

func (r *run) start(ctx context.Context) error {
	for i, v := range r.Variants {
		if v.Skip != "" {
			continue
		}
		r.tell(0, fmt.Sprintf("starting %s (%d of %d)", v.Name, i+1, len(r.Variants)), 0)
		s, err := v.Start(ctx)
		if err != nil {
			return fmt.Errorf("%s: cannot start: %w", v.Name, err)
		}
		r.subjects[i] = s
	}
	for i, s := range r.subjects { // not before: others may be needed to start one
		if p, ok := s.(Pauser); ok {
			if err := p.Pause(); err != nil {
				return fmt.Errorf("%s: %w", r.Variants[i].Name, err)
			}
		}
	}
	return nil
}

// sample measures a subject. A Pauser is resumed for that.
func (r *run) sample(ctx context.Context, s Subject, round Round) (Sample, error) {
	p, ok := s.(Pauser)
	if !ok {
		return s.Measure(ctx, round)
	}
	if err := p.Resume(ctx); err != nil {
		return nil, err
	}
	out, err := p.Measure(ctx, round)
	return out, errors.Join(err, p.Pause())
}

// stop stops all started subjects, the last one first.
func (r *run) stop() {
	r.progress("stopping")
	for _, s := range slices.Backward(r.subjects) {
		if s != nil {
			s.Stop()
		}
	}
}

// one measures a round. It keeps the samples only if the round is complete.
func (r *run) one(ctx context.Context, n int) error {
	began := time.Now()
	samples := make([]Sample, len(r.subjects))
	for at, i := range r.order(n) {
		name := r.Variants[i].Name
		r.tell(n, fmt.Sprintf("round %d of %d, %s", n, r.Rounds, name), float64(at)/float64(len(r.subjects)))
		s, err := r.sample(ctx, r.subjects[i], Round{Number: n, Warming: n == 0})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		samples[i] = s
	}
	if n == 0 {
		r.round = max(r.Expect, time.Since(began))
		return nil
	}
	r.round = time.Since(began)
	r.report.Rounds++
	r.deriveFrom(samples)
	for i, s := range samples {
		if s != nil {
			r.report.Variants[i].Samples = append(r.report.Variants[i].Samples, s)
		}
	}
	return nil
}

// deriveFrom adds the computed metrics of a round.
func (r *run) deriveFrom(samples []Sample) {
	for _, m := range r.Metrics {
		if m.From == nil {
			continue
		}
		at := slices.IndexFunc(r.Variants, func(v Variant) bool { return v.Name == m.From.Base })
		base, ok := samples[at][m.From.Metric]
		for _, s := range samples {
			switch x, has := s[m.From.Metric]; {
			case !has || !ok || m.From.Ratio && base == 0:
			case m.From.Ratio:
				s[m.Name] = x / base
			default:
				s[m.Name] = x - base
			}
		}
	}
}

// order is the order of a round: forwards and backwards in turn, and with another beginning each time, so that no
// variant always follows the same one.
func (r *run) order(n int) (out []int) {
	for i, s := range r.subjects {
		if s != nil {
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return nil
	}
	cut := n / 2 * 2 % len(out)
	out = slices.Concat(out[cut:], out[:cut])
	if n%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

// tell reports the current step and about how long the rest takes; share is the completed share of this round.
func (r *run) tell(n int, what string, share float64) {
	rest := time.Duration((float64(r.Rounds-n) + 1 - share) * float64(r.round))
	r.progress(fmt.Sprintf("%s; about %s left", what, min(rest, max(r.left(), 0)).Round(time.Second)))
}
