package concurrency

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/bench"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/openloop"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Names of metrics. Samples also have the CPU time of each worker, in percent: worker_0, ...
const (
	metricQPS     = "qps"
	metricKept    = "kept"
	metricBusiest = "busiest"
	metricMean    = "mean"
	metricMain    = "main"
	metricCost    = "us_a_request"
	metricP50     = "p50_ms"
	metricP99     = "p99_ms"
	metricAdvised = "advised"
	sampleOffered = "offered"
)

// all is the load of as many requests as are answered.
const all = 0

func nameOf(workers, load int) string {
	if load == all {
		return crew(workers) + ", highest rate"
	}
	return fmt.Sprintf("%s, %d %%", crew(workers), load)
}

func crew(workers int) string {
	if workers == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", workers)
}

// lab has what all variants share. Only the goroutine that runs the experiment uses it.
type lab struct {
	bench.Bench
	options *Options
	full    float64 // requests a second of one worker: 100 %
}

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	l := &lab{Bench: bench.Bench{Options: o.Pair}, options: &o}
	e := &experiment.Experiment{
		Name: "concurrency", Title: "Worker threads and their CPU",
		About: `A server's sidecar gets increasing loads. Requests are sent at fixed times, whether or not earlier ones were answered (an open loop).
Latencies count from the time at which a request was due, so that they include queues. 100 % is the highest rate of a sidecar
with one worker. The kernel measures the CPU time of each of Envoy's threads. Comparisons show what another worker changes:
requests, latency, and CPU time for each request.`,
		Metrics: []experiment.Metric{
			{Name: metricQPS, Title: "requests/s", Unit: "requests/s", Better: experiment.Higher},
			{Name: metricKept, Title: "of those due", Unit: "%", Better: experiment.Higher, Absolute: true},
			{Name: metricBusiest, Title: "busiest worker", Unit: "% CPU", Absolute: true},
			{Name: metricMean, Title: "mean of workers", Unit: "% CPU", Absolute: true},
			{Name: metricMain, Title: "main thread", Unit: "% CPU", Absolute: true},
			{Name: metricCost, Title: "us CPU/request", Unit: "us", Better: experiment.Lower},
			{Name: metricP50, Title: "p50", Unit: "ms", Better: experiment.Lower},
			{Name: metricP99, Title: "p99", Unit: "ms", Better: experiment.Lower},
			{Name: metricAdvised, Title: "flagged BUSY", Unit: "of 1", Absolute: true},
		},
		Facts: []string{
			fmt.Sprintf("server sidecar only, plain text, HTTP/1.1, %d connections, %s for each load; the load and the application run on the same CPUs", o.Connections, o.Phase),
			"flagged BUSY: 'moonsail proxies --workers' would recommend more workers",
		},
		Rounds: o.Rounds, Expect: o.Expect, Envoy: o.Pair.Envoy,
		Before: l.before, Finish: l.finish,
	}
	for _, w := range o.Workers {
		l.List = append(l.List, bench.Named{Name: fmt.Sprint(w), Setup: pair.Setup{Server: true, Concurrency: w}})
		for _, load := range append(o.Loads[:len(o.Loads):len(o.Loads)], all) {
			e.Variants = append(e.Variants, l.variant(w, load))
		}
	}
	compare(e, &o)
	addPlots(e, &o)
	return e
}

func (l *lab) variant(workers, load int) experiment.Variant {
	return experiment.Variant{
		Name: nameOf(workers, load), Series: crew(workers), X: float64(load),
		Start: func(context.Context) (experiment.Subject, error) {
			address, err := bench.Address(l.Pair(fmt.Sprint(workers)))
			return &subject{lab: l, pair: l.Pair(fmt.Sprint(workers)), address: address, load: load}, err
		},
	}
}

// compare compares each number of workers with the one below it: the maximum of requests, and the load next to what one
// worker can answer.
func compare(e *experiment.Experiment, o *Options) {
	for i := 1; i < len(o.Workers); i++ {
		more, fewer := o.Workers[i], o.Workers[i-1]
		e.Compare = append(e.Compare,
			experiment.Pair{Variant: nameOf(more, all), Base: nameOf(fewer, all), Metrics: []string{metricQPS, metricCost}},
			experiment.Pair{Variant: nameOf(more, o.high()), Base: nameOf(fewer, o.high()), Metrics: []string{metricP99, metricCost}})
	}
}

// high is the highest load that one worker should still answer.
func (o *Options) high() int {
	out := o.Loads[0]
	for _, l := range o.Loads {
		if l < 100 {
			out = l
		}
	}
	return out
}

const axis = "load, % of what one worker answers"

func addPlots(e *experiment.Experiment, o *Options) {
	var names, most []string
	for _, w := range o.Workers {
		for _, load := range o.Loads {
			names = append(names, nameOf(w, load))
		}
		most = append(most, nameOf(w, all))
	}
	for _, p := range []experiment.Plot{
		{Title: "CPU of the busiest worker", Metric: metricBusiest, About: "A worker at 100 % is saturated: further requests wait."},
		{Title: "p99 from when a request was due", Metric: metricP99, About: "Where the line rises, a queue grows for as long as the load lasts."},
		{Title: "Rate of answers, of the rate of requests", Metric: metricKept},
		{Title: "Envoy's CPU for each request", Metric: metricCost, About: "All threads. A worker that is never idle takes several requests each time it wakes; many workers wake for one each."},
	} {
		p.X, p.Variants = axis, names
		e.Plots = append(e.Plots, p)
	}
	e.Plots = append(e.Plots, experiment.Plot{Title: "All that is answered", Metric: metricQPS, Variants: most})
}

// Calibration measures what one worker answers. The best try counts, because other processes can only make it worse.
const (
	calibrations    = 6
	calibrationTime = 500 * time.Millisecond
)

func (l *lab) before(ctx context.Context) (stop func(), err error) {
	if stop, err = l.Bench.Before(ctx); err != nil {
		return nil, err
	}
	if err := l.calibrate(ctx); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (l *lab) calibrate(ctx context.Context) error {
	p := l.Pair("1")
	address, err := bench.Address(p)
	if err != nil {
		return err
	}
	for range calibrations {
		begun := time.Now()
		out, err := (&openloop.Load{Address: address, Hosts: []string{p.Host}, Conns: l.options.Connections}).Run(ctx, calibrationTime)
		if err != nil {
			return fmt.Errorf("what one worker answers: %w", err)
		}
		l.full = max(l.full, float64(len(out.Latencies))/time.Since(begun).Seconds())
	}
	return nil
}
