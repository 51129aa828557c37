package experiment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a variant with invented samples.
type fake struct {
	name    string
	value   func(r Round) (Sample, error)
	log     *[]string // of all variants: what was done, in order
	stopped int
}

func (f *fake) Measure(ctx context.Context, r Round) (Sample, error) {
	*f.log = append(*f.log, f.name)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return f.value(r)
}

func (f *fake) Stop() { f.stopped++; *f.log = append(*f.log, "stop "+f.name) }

func (f *fake) variant() Variant {
	return Variant{Name: f.name, Series: f.name, Start: func(context.Context) (Subject, error) { return f, nil }}
}

// made returns an experiment whose requests per second grow with the round, times a factor for each variant.
func made(rounds int, factors map[string]float64) (*Experiment, map[string]*fake, *[]string) {
	log, fakes := &[]string{}, map[string]*fake{}
	e := &Experiment{
		Name: "made", Title: "Made up", Rounds: rounds, Budget: time.Minute,
		Metrics: []Metric{{Name: "qps", Title: "requests/s", Unit: "1/s", Better: Higher}, {Name: "added", Title: "added", Unit: "ms", Better: Lower, Absolute: true}},
		Plots:   []Plot{{Title: "Requests", Metric: "qps"}},
	}
	for i, name := range []string{"base", "a", "b"} {
		factor, ok := factors[name]
		if !ok {
			continue
		}
		fakes[name] = &fake{name: name, log: log, value: func(r Round) (Sample, error) {
			// The machine is slower in some rounds, and each sample has its own noise.
			noise := 1 + 0.01*float64(r.Number*(i+1)%5-2)
			return Sample{"qps": 1000 * float64(1+r.Number%3) * factor * noise, "added": factor}, nil
		}}
		e.Variants = append(e.Variants, fakes[name].variant())
	}
	return e, fakes, log
}

// paused is a variant that takes CPU time while others are measured.
type paused struct{ *fake }

func (p paused) Pause() error {
	*p.log = append(*p.log, "pause "+p.name)
	return nil
}

func (p paused) Resume(context.Context) error {
	*p.log = append(*p.log, "resume "+p.name)
	return nil
}

// TestPause checks that a variant that can be paused runs only while it is measured.
func TestPause(t *testing.T) {
	e, fakes, log := made(2, map[string]float64{"base": 1, "a": 0.8})
	for i := range e.Variants {
		p := paused{fakes[e.Variants[i].Name]}
		e.Variants[i].Start = func(context.Context) (Subject, error) { return p, nil }
	}
	_, err := Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, []string{"pause base", "pause a"}, (*log)[:2], "all are started first")
	running := ""
	for _, l := range (*log)[2 : len(*log)-2] {
		switch what, name, _ := strings.Cut(l, " "); what {
		case "resume":
			require.Empty(t, running)
			running = name
		case "pause":
			require.Equal(t, running, name)
			running = ""
		default:
			require.Equal(t, running, what, "it is measured")
		}
	}
	require.Equal(t, []string{"stop a", "stop base"}, (*log)[len(*log)-2:])
	require.Len(t, *log, 2+3*2*3+2)
}

// TestDefect checks that a variant that is slower by a fifth is found although rounds differ by a factor of three. A
// variant that is equal is within noise.
func TestDefect(t *testing.T) {
	e, fakes, _ := made(9, map[string]float64{"base": 1, "a": 0.8, "b": 1.001})
	e.Compare = []Pair{{Variant: "a", Base: "base"}, {Variant: "b", Base: "base", Metrics: []string{"qps"}}}
	e.Targets = []Target{
		{What: "a keeps up", Metric: "qps", Variant: "a", Base: "base", Limit: 0.95, AtLeast: true},
		{What: "b keeps up", Metric: "qps", Variant: "b", Base: "base", Limit: 0.95, AtLeast: true},
		{What: "added by a", Metric: "added", Variant: "a", Limit: 0.8},
	}
	r, err := Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 9, r.Rounds)
	require.Equal(t, IsLower, r.Comparisons[0].Verdict)
	require.InDelta(t, 0.8, r.Comparisons[0].Median, 0.03)
	require.Equal(t, -1, r.Good(&r.Comparisons[0]))
	require.Equal(t, IsLower, r.Comparisons[1].Verdict)
	require.InDelta(t, -0.2, r.Comparisons[1].Median, 1e-9, "what is absolute is a difference")
	require.Equal(t, 1, r.Good(&r.Comparisons[1]), "less is added")
	require.Equal(t, WithinNoise, r.Comparisons[2].Verdict)
	require.Equal(t, []string{Missed, Met, Met}, []string{r.Targets[0].Verdict, r.Targets[1].Verdict, r.Targets[2].Verdict})
	require.Equal(t, []bool{false, true, true}, []bool{r.Targets[0].Met, r.Targets[1].Met, r.Targets[2].Met})
	require.Equal(t, [2]int{2, 3}, r.Held())
	for _, f := range fakes {
		require.Equal(t, 1, f.stopped)
	}
}

// TestOrder checks that each round measures all variants in another order, and that the last one started is stopped
// first.
func TestOrder(t *testing.T) {
	e, _, log := made(5, map[string]float64{"base": 1, "a": 1, "b": 1})
	_, err := Run(t.Context(), e)
	require.NoError(t, err)
	require.Len(t, *log, 6*3+3)
	require.Equal(t, []string{"stop b", "stop a", "stop base"}, (*log)[18:])
	orders := map[string]bool{}
	for i := range 6 {
		round := (*log)[3*i : 3*i+3]
		orders[round[0]+round[1]+round[2]] = true
		require.ElementsMatch(t, []string{"base", "a", "b"}, round)
	}
	require.Greater(t, len(orders), 3)
}

// TestInterrupted checks that complete rounds are kept, an incomplete one is dropped, and all variants are stopped.
func TestInterrupted(t *testing.T) {
	e, fakes, _ := made(5, map[string]float64{"base": 1, "a": 1})
	ctx, cancel := context.WithCancel(t.Context())
	last := fakes["a"].value
	fakes["a"].value = func(r Round) (Sample, error) {
		if r.Number == 3 {
			cancel()
			return nil, ctx.Err()
		}
		return last(r)
	}
	r, err := Run(ctx, e)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, r.Rounds)
	require.NotEmpty(t, r.Stopped)
	for _, v := range r.Variants {
		require.Len(t, v.Samples, 2)
	}
	for _, f := range fakes {
		require.Equal(t, 1, f.stopped)
	}
}

func TestNoStart(t *testing.T) {
	e, fakes, _ := made(5, map[string]float64{"base": 1, "a": 1, "b": 1})
	e.Variants[1].Start = func(context.Context) (Subject, error) { return (*fake)(nil), errors.New("no luck") } // a pointer of a type that nothing else has
	r, err := Run(t.Context(), e)
	require.EqualError(t, err, "a: cannot start: no luck")
	require.Equal(t, err.Error(), r.Stopped)
	require.Equal(t, []int{1, 0, 0}, []int{fakes["base"].stopped, fakes["a"].stopped, fakes["b"].stopped})
}

// TestBudget checks that a round that would exceed the budget does not begin, and that the report states it.
func TestBudget(t *testing.T) {
	e, _, _ := made(1000, map[string]float64{"base": 1})
	e.Budget, e.Expect = stopTime+time.Hour, 0
	r := &run{Experiment: e, begun: time.Now().Add(-2 * time.Hour), round: time.Second, report: &Report{}}
	require.Negative(t, r.left())
	e.Budget = stopTime + time.Nanosecond
	got, err := Run(t.Context(), e)
	require.ErrorIs(t, err, errBudget)
	require.ErrorContains(t, err, "no round was complete within 5.000000001s")
	require.Zero(t, got.Rounds)
}

func TestSkip(t *testing.T) {
	e, fakes, _ := made(5, map[string]float64{"base": 1, "a": 1})
	e.Variants[1].Skip = "no compiler found"
	e.Compare = []Pair{{Variant: "a", Base: "base"}}
	r, err := Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "no compiler found", r.Variant("a").Skipped)
	require.Empty(t, r.Variant("a").Samples)
	require.Equal(t, NotMeasured, r.Comparisons[0].Verdict)
	require.Zero(t, fakes["a"].stopped)
}

func TestWrongNames(t *testing.T) {
	e, _, _ := made(1, map[string]float64{"base": 1})
	e.Compare = []Pair{{Variant: "a", Base: "base"}}
	e.Targets = []Target{{Variant: "base", Base: "z"}}
	_, err := Run(t.Context(), e)
	require.ErrorContains(t, err, `unknown variant "a"`)
	require.ErrorContains(t, err, `unknown variant "z"`)
}

// TestProgress checks that each measurement begins with the time left, which decreases.
func TestProgress(t *testing.T) {
	e, _, _ := made(2, map[string]float64{"base": 1, "a": 1})
	e.Expect = 10 * time.Second
	var labels []string
	e.Progress = func(label string) { labels = append(labels, label) }
	_, err := Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "starting base (1 of 2); about 30s left", labels[0])
	require.True(t, slices.Contains(labels, "round 0 of 2, base; about 30s left"), labels)
	require.True(t, slices.Contains(labels, "round 0 of 2, a; about 25s left"), labels)
	require.Equal(t, "stopping", labels[len(labels)-1])
}

// TestFinish checks that an experiment can add to the finished report.
func TestFinish(t *testing.T) {
	e, _, _ := made(2, map[string]float64{"base": 1})
	e.Finish = func(r *Report) {
		require.NotNil(t, r.Variants[0].Summary)
		r.Charts = append(r.Charts, Chart{Title: "added", Y: "s", Bars: []ChartBar{{"a", []float64{1}}}})
	}
	r, err := Run(t.Context(), e)
	require.NoError(t, err)
	var page strings.Builder
	require.NoError(t, r.WriteHTML(&page))
	require.Contains(t, page.String(), "added")
}

// TestDerived checks that derived metrics are computed for each round, and that what variants share starts before them
// and ends after them.
func TestDerived(t *testing.T) {
	e, _, log := made(5, map[string]float64{"base": 1, "a": 0.5})
	e.Metrics = append(e.Metrics, Metric{Name: "share", From: &Derived{Metric: "qps", Base: "base", Ratio: true}},
		Metric{Name: "more", From: &Derived{Metric: "added", Base: "base"}})
	e.Before = func(context.Context) (func(), error) {
		*log = append(*log, "before")
		return func() { *log = append(*log, "after") }, nil
	}
	r, err := Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "before", (*log)[0])
	require.Equal(t, "after", (*log)[len(*log)-1])
	for i, s := range r.Variant("a").Samples {
		require.InDelta(t, s["qps"]/r.Variant("base").Samples[i]["qps"], s["share"], 1e-12)
		require.InDelta(t, -0.5, s["more"], 1e-12)
	}
	require.InDelta(t, 1, r.Variant("base").Summary["share"].Median, 1e-12)
}
