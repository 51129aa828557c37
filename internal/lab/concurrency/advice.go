package concurrency

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/experiment"
)

// Advice is the recommended number of workers for a sidecar, and the reason.
type Advice struct {
	Workers int
	Reasons []string
}

// worthIt is the ratio from which another worker pays: of the requests with it to those without, or of the p99 at a
// high load without it to that with it.
const worthIt = 1.1

// Limits of a load that counts as answered well.
const (
	wellKept    = 98.0 // percent of the offered rate
	wellQueued  = 5.0  // times the p99 of the lowest load
	wellBelow   = 80.0 // percent of a CPU, of the busiest worker: what 'proxies --workers' calls busy
	leastGround = 0.5  // ms: a lower p99 is not better
)

// Advise adds workers as long as each step certainly pays.
func Advise(r *experiment.Report, o *Options, cpus int) Advice {
	a := Advice{Workers: o.Workers[0]}
	for i := 1; i < len(o.Workers); i++ {
		more, fewer := o.Workers[i], o.Workers[i-1]
		gain, cost := find(r, metricQPS, more, fewer, all), find(r, metricCost, more, fewer, all)
		if gain == nil || gain.N == 0 {
			break
		}
		a.Reasons = append(a.Reasons, fmt.Sprintf("at the highest rate %s answer %.2f times the requests of %s (%.2f to %.2f: %s)%s",
			crew(more), gain.Median, crew(fewer), gain.Low, gain.High, gain.Verdict, costOf(cost)))
		wait := find(r, metricP99, more, fewer, o.high())
		sooner := wait != nil && wait.Verdict == experiment.IsLower && wait.Median*worthIt <= 1
		if sooner {
			a.Reasons = append(a.Reasons, fmt.Sprintf("at %d %% their p99 is %.2f times the other's (%.2f to %.2f)", o.high(), wait.Median, wait.Low, wait.High))
		}
		if !sooner && (gain.Verdict != experiment.IsHigher || gain.Median < worthIt) {
			break
		}
		a.Workers = more
	}
	if text := knee(r, o, a.Workers); text != "" {
		a.Reasons = append(a.Reasons, text)
	}
	a.Reasons = append(a.Reasons, fmt.Sprintf("this machine has %d CPUs, which the load and the application use too: "+
		"on a machine where Envoy has its own CPUs another worker brings more, up to one CPU", cpus))
	return a
}

func costOf(c *experiment.Comparison) string {
	if c == nil || c.N == 0 {
		return ""
	}
	return fmt.Sprintf(", with %.2f times the CPU for each", c.Median)
}

func find(r *experiment.Report, metric string, more, fewer, load int) *experiment.Comparison {
	for i := range r.Comparisons {
		if c := &r.Comparisons[i]; c.Metric == metric && c.Variant == nameOf(more, load) && c.Base == nameOf(fewer, load) {
			return c
		}
	}
	return nil
}

// knee describes up to which load a number of workers answers well (everything on time, without a queue), and the CPU
// time of the busiest worker there.
func knee(r *experiment.Report, o *Options, workers int) string {
	last, ground := "", 0.0
	for _, load := range o.Loads {
		v := r.Variant(nameOf(workers, load))
		if v == nil || len(v.Samples) == 0 {
			return ""
		}
		p99 := v.Summary[metricP99].Median
		if ground == 0 {
			ground = max(p99, leastGround)
		}
		if v.Summary[metricKept].Median < wellKept || p99 > wellQueued*ground {
			break
		}
		busiest := v.Summary[metricBusiest].Median
		last = fmt.Sprintf("with %d, %.0f requests per second are answered well (p99 %.2f ms) while the busiest worker uses %.0f %% of a CPU",
			workers, v.Summary[metricQPS].Median, p99, busiest)
		if busiest > wellBelow {
			last += fmt.Sprintf(", more than the %.0f %% at which 'moonsail proxies --workers' recommends more workers", wellBelow)
		}
	}
	return last
}

// String returns the recommendation in words.
func (a Advice) String() string {
	return fmt.Sprintf("Recommended: concurrency %d. %s.", a.Workers, upper(strings.Join(a.Reasons, "; ")))
}

func upper(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// finish adds the recommendation, the meaning of 100 %, and the CPU time of threads.
func (l *lab) finish(r *experiment.Report) {
	if l.full > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("100 %% is %.0f requests per second: the best of %d runs before the first round, at the highest rate of one worker.", l.full, calibrations))
	}
	if r.Rounds == 0 {
		return
	}
	r.Notes = append(r.Notes, Advise(r, l.options, runtime.NumCPU()).String())
	for _, w := range l.options.Workers {
		r.Charts = append(r.Charts, threadsOf(r, l.options, w))
	}
}

// threadsOf draws the CPU time of each thread by load.
func threadsOf(r *experiment.Report, o *Options, workers int) experiment.Chart {
	c := experiment.Chart{Title: "CPU of each thread, " + crew(workers), X: axis, Y: "% of a CPU",
		About: "Medians. Worker threads have equal numbers of connections, and so equal loads; the main thread handles no requests."}
	keys := []string{metricMain}
	for i := range workers {
		keys = append(keys, workerKey(i))
	}
	for _, key := range keys {
		line := experiment.ChartLine{Name: strings.ReplaceAll(key, "_", " ")}
		for _, load := range o.Loads {
			if v := r.Variant(nameOf(workers, load)); v != nil && len(v.Samples) > 0 {
				line.Points = append(line.Points, [2]float64{float64(load), experiment.Median(valuesOf(v, key))})
			}
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

func valuesOf(v *experiment.Result, key string) (out []float64) {
	for _, s := range v.Samples {
		out = append(out, s[key])
	}
	return out
}
