package routes

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
)

// warmTime limits a phase of the warm-up.
const warmTime = time.Second

// Measure implements experiment.Subject. It runs a phase without changes and one with them.
func (s *subject) Measure(ctx context.Context, r experiment.Round) (experiment.Sample, error) {
	d := s.options.Phase
	if r.Warming {
		d = min(d, warmTime)
	}
	quiet, err := s.run(ctx, s.options, d, false)
	if err != nil {
		return nil, err
	}
	changing, err := s.changing(ctx, d)
	if err != nil {
		return nil, err
	}
	out := sampleOf(quiet, changing)
	out[metricReady] = millis(s.ready)
	allocated, _, err := s.proxy.memory(ctx)
	if err != nil {
		return nil, err
	}
	out[metricHeap] = float64(allocated >> 20)
	wrong, err := s.wrong(ctx)
	out[metricWrong] = float64(wrong)
	return out, err
}

// changing runs a phase with changes, and counts what Envoy receives in it.
func (s *subject) changing(ctx context.Context, d time.Duration) (*phase, error) {
	before, err := s.proxy.received(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.run(ctx, s.options, d, true)
	if err != nil {
		return nil, err
	}
	after, err := s.proxy.received(ctx)
	out.bytes = after - before
	return out, err
}

// Stop implements experiment.Subject.
func (s *subject) Stop() { s.stop() }

// sampleOf returns the numbers of two phases.
func sampleOf(quiet, changing *phase) experiment.Sample {
	out := experiment.Sample{
		metricQuiet50: millis(percentile(quiet.outcome.Latencies, 0.5)), metricQuiet99: millis(percentile(quiet.outcome.Latencies, 0.99)),
		metricChanging50: millis(percentile(changing.outcome.Latencies, 0.5)), metricChanging99: millis(percentile(changing.outcome.Latencies, 0.99)),
		metricACK50: millis(percentile(changing.acks, 0.5)), metricACK99: millis(percentile(changing.acks, 0.99)),
		metricFailed:  float64(quiet.outcome.Failed + changing.outcome.Failed),
		metricRequest: per(micros(quiet.cpu.AllWorkers()), float64(len(quiet.outcome.Latencies))),
	}
	n, same := float64(len(changing.acks)), per(float64(changing.took), float64(quiet.took))
	out[metricRatio] = per(out[metricChanging99], out[metricQuiet99])
	out[metricChanges], out[metricBytes] = per(n, changing.took.Seconds()), per(float64(changing.bytes), n)
	// What the same load uses without changes does not count.
	out[metricMain] = per(millis(changing.cpu.Main)-millis(quiet.cpu.Main)*same, n)
	out[metricWorkers] = per(millis(changing.cpu.AllWorkers())-millis(quiet.cpu.AllWorkers())*same, n)
	return out
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// percentile returns the nearest rank, or 0 without samples. It sorts the samples.
func percentile(samples []time.Duration, share float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	i := int(math.Ceil(share*float64(len(samples)))) - 1
	return samples[min(max(i, 0), len(samples)-1)]
}

// per returns a/n, or 0 if n is 0.
func per(a, n float64) float64 {
	if n == 0 {
		return 0
	}
	return a / n
}
