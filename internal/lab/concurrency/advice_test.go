package concurrency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/threads"
)

// TestSampleOf checks that CPU time is divided by the elapsed time, and that latencies are those of all requests.
func TestSampleOf(t *testing.T) {
	cpu := threads.CPU{Main: 10 * time.Millisecond, Workers: []time.Duration{900 * time.Millisecond, 850 * time.Millisecond}, Others: 40 * time.Millisecond}
	latencies := []time.Duration{4 * time.Millisecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}
	s := sampleOf(latencies, cpu, time.Second+setupTime, 500*time.Millisecond, 8)
	took := (time.Second + setupTime).Seconds()
	for name, want := range map[string]float64{
		metricQPS: 4 / took, metricKept: 50, sampleOffered: 8, metricMain: 1 / took, "worker_0": 90 / took, "worker_1": 85 / took,
		metricBusiest: 90 / took, metricMean: 87.5 / took, metricCost: 450_000, metricP50: 2, metricP99: 4, metricAdvised: 1,
	} {
		require.InDelta(t, want, s[name], 1e-6, name)
	}
	cpu.Workers[1] = 100 * time.Millisecond
	s = sampleOf(latencies, cpu, time.Second, time.Second, 0)
	require.Zero(t, s[metricAdvised], "one worker is idle")
	require.NotContains(t, s, metricKept, "nothing was due")
}

// made is a report with given medians: the maximum of requests per second by workers; and, for one worker at each load,
// the p99, the busiest worker, and the share of requests that were sent.
func made(o *Options, qps map[int][]float64, knee map[int][3]float64) *experiment.Report {
	r := &experiment.Report{Metrics: New(*o).Metrics}
	for _, w := range o.Workers {
		v := experiment.Result{Name: nameOf(w, all)}
		for _, q := range qps[w] {
			v.Samples = append(v.Samples, experiment.Sample{metricQPS: q, metricCost: 100})
		}
		r.Variants = append(r.Variants, v)
		for load, k := range knee {
			r.Variants = append(r.Variants, experiment.Result{Name: nameOf(w, load), Samples: []experiment.Sample{
				{metricQPS: float64(100 * load), metricP99: k[0], metricBusiest: k[1], metricKept: k[2]},
			}})
		}
	}
	for i := 1; i < len(o.Workers); i++ {
		for _, m := range []string{metricQPS, metricCost} {
			r.Comparisons = append(r.Comparisons, experiment.Comparison{Metric: m, Variant: nameOf(o.Workers[i], all), Base: nameOf(o.Workers[i-1], all)})
		}
	}
	r.Conclude()
	return r
}

func five(v float64) []float64 { return []float64{v, 1.01 * v, 0.99 * v, v, v} }

// TestAdvise checks that another worker is recommended only if it certainly improves the result.
func TestAdvise(t *testing.T) {
	o := &Options{Workers: []int{1, 2, 4}, Loads: []int{50, 100, 150}}
	noisy := []float64{500, 1500, 900, 3000, 700}
	for name, c := range map[string]struct {
		qps  map[int][]float64
		want int
	}{
		"each brings more":          {map[int][]float64{1: five(1000), 2: five(1900), 4: five(3500)}, 4},
		"the second does":           {map[int][]float64{1: five(1000), 2: five(1600), 4: five(1610)}, 2},
		"none does":                 {map[int][]float64{1: five(1000), 2: five(1050), 4: five(3000)}, 1},
		"it is worse":               {map[int][]float64{1: five(1000), 2: five(800), 4: five(700)}, 1},
		"too noisy to tell":         {map[int][]float64{1: five(1000), 2: noisy, 4: five(4000)}, 1},
		"nothing was measured":      {map[int][]float64{}, 1},
		"two rounds say too little": {map[int][]float64{1: {1000, 1000}, 2: {2000, 2000}}, 1},
	} {
		require.Equal(t, c.want, Advise(made(o, c.qps, nil), o, 2).Workers, name)
	}
}

// TestKnee checks that loads count as answered well until a queue grows or requests are late.
func TestKnee(t *testing.T) {
	o := &Options{Workers: []int{1, 2}, Loads: []int{50, 100, 150}}
	qps := map[int][]float64{1: five(1000), 2: five(1000)}
	text := Advise(made(o, qps, map[int][3]float64{50: {1, 40, 100}, 100: {4.9, 85, 99}, 150: {80, 99, 70}}), o, 2).String()
	require.Contains(t, text, "Recommended: concurrency 1. At the highest rate 2 workers answer 1.00 times the requests of 1 worker (1.00 to 1.00: within noise), with 1.00 times the CPU for each; ")
	require.Contains(t, text, "with 1, 10000 requests per second are answered well (p99 4.90 ms) while the busiest worker uses 85 % of a CPU, more than the 80 %")
	require.Contains(t, text, "this machine has 2 CPUs")
	text = Advise(made(o, qps, map[int][3]float64{50: {1, 40, 100}, 100: {5.1, 85, 99}, 150: {1, 99, 100}}), o, 2).String()
	require.Contains(t, text, "with 1, 5000 requests per second are answered well (p99 1.00 ms) while the busiest worker uses 40 % of a CPU")
	text = Advise(made(o, qps, map[int][3]float64{50: {1, 40, 90}}), o, 2).String()
	require.NotContains(t, text, "answered well")
}

func TestCheck(t *testing.T) {
	good := DefaultOptions()
	require.NoError(t, good.Check())
	quick := QuickOptions()
	require.NoError(t, quick.Check())
	for want, change := range map[string]func(*Options){
		"--workers must begin with 1":      func(o *Options) { o.Workers = []int{2, 4} },
		"--workers 0: use 1 to 64":         func(o *Options) { o.Workers = []int{0} },
		"--workers: name at least one":     func(o *Options) { o.Workers = nil },
		"--loads: list the numbers in asc": func(o *Options) { o.Loads = []int{50, 20} },
		"--loads 500: use 1 to 400":        func(o *Options) { o.Loads = []int{500} },
		"--connections 0: use 1 to 1024":   func(o *Options) { o.Connections = 0 },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, o.Check(), want)
	}
}

// TestAdviseForLatency checks that a worker that certainly shortens queues is recommended, whatever the throughput.
func TestAdviseForLatency(t *testing.T) {
	o := &Options{Workers: []int{1, 2}, Loads: []int{50, 80, 120}}
	r := made(o, map[int][]float64{1: five(1000), 2: five(1000)}, nil)
	for w, p99 := range map[int]float64{1: 100, 2: 40} {
		v := experiment.Result{Name: nameOf(w, 80)}
		for _, p := range five(p99) {
			v.Samples = append(v.Samples, experiment.Sample{metricP99: p})
		}
		r.Variants = append(r.Variants, v)
	}
	require.Equal(t, 1, Advise(r, o, 2).Workers)
	r.Comparisons = append(r.Comparisons, experiment.Comparison{Metric: metricP99, Variant: nameOf(2, 80), Base: nameOf(1, 80)})
	r.Conclude()
	a := Advise(r, o, 2)
	require.Equal(t, 2, a.Workers)
	require.Contains(t, a.String(), "at 80 % their p99 is 0.40 times the other's (0.40 to 0.40)")
}
