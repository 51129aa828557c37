package pair

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/load"
)

// Phases are the measurements of a pair in a round: as many requests as are answered, and then latencies at fixed
// rates.
type Phases struct {
	Connections int
	Closed      time.Duration
	Rates       []int // requests a second; each a phase
	Fixed       time.Duration
	// OpenLoop sends requests at fixed times, whether or not responses are late.
	OpenLoop bool
	// RateConnections is the number of connections at fixed rates, low enough that no request waits for another.
	RateConnections int
	// Rest is how long a resumed Envoy has before it is measured, for its timers and for streams that ended while it was
	// paused; 0: half a second.
	Rest time.Duration
}

// Metrics returns the metrics of a pair. none is the variant without sidecars that others are compared with.
func (p Phases) Metrics(none string) []experiment.Metric {
	out := []experiment.Metric{
		{Name: "qps", Title: "requests/s", Unit: "/s", Better: experiment.Higher},
		{Name: "share", Title: "of " + none, Unit: "x", Better: experiment.Higher, From: &experiment.Derived{Metric: "qps", Base: none, Ratio: true}},
		{Name: "cpu", Title: "Envoys' CPU ms/1000", Unit: "ms", Better: experiment.Lower},
		{Name: "cpu_client", Title: "client's", Unit: "ms", Better: experiment.Lower, Detail: true},
		{Name: "cpu_server", Title: "server's", Unit: "ms", Better: experiment.Lower, Detail: true},
		{Name: "cpu_app", Title: "application's CPU ms/1000", Unit: "ms", Better: experiment.Lower, Detail: true},
		{Name: "cpu_load", Title: "load's CPU ms/1000", Unit: "ms", Better: experiment.Lower, Detail: true},
		{Name: "closed_p50", Title: "p50 ms", Unit: "ms", Better: experiment.Lower, Absolute: true, Detail: true},
		{Name: "closed_p99", Title: "p99 ms", Unit: "ms", Better: experiment.Lower, Absolute: true, Detail: true},
		{Name: "rss", Title: "Envoy's RSS MB", Unit: "MB", Better: experiment.Lower, Absolute: true},
		{Name: "failed", Title: "failed", Better: experiment.Lower, Absolute: true},
	}
	for _, r := range p.Rates {
		for _, q := range []string{"p50", "p99"} {
			name := fmt.Sprintf("%s_%d", q, r)
			out = append(out,
				experiment.Metric{Name: name, Title: fmt.Sprintf("%s ms at %d/s", q, r), Unit: "ms", Better: experiment.Lower, Absolute: true, Detail: true},
				experiment.Metric{Name: "added_" + name, Title: fmt.Sprintf("added %s ms at %d/s", q, r), Unit: "ms", Better: experiment.Lower,
					From: &experiment.Derived{Metric: name, Base: none}})
		}
		out = append(out, experiment.Metric{Name: fmt.Sprintf("cpu_%d", r), Title: fmt.Sprintf("Envoys' CPU ms/1000 at %d/s", r), Unit: "ms", Better: experiment.Lower, Detail: true})
	}
	return out
}

// Expect estimates the time of a measurement.
func (p Phases) Expect() time.Duration {
	const around = 250 * time.Millisecond // processes start, connections are made
	return p.Closed + around + time.Duration(len(p.Rates))*(p.Fixed+around)
}

// Subject is a pair that is measured in phases.
type Subject struct {
	*Pair
	Phases Phases
}

// Measure implements experiment.Subject.
func (s *Subject) Measure(ctx context.Context, _ experiment.Round) (experiment.Sample, error) {
	out := experiment.Sample{}
	if err := s.closed(ctx, out); err != nil {
		return nil, err
	}
	for _, r := range s.Phases.Rates {
		if err := s.fixed(ctx, out, r); err != nil {
			return nil, err
		}
	}
	return out, s.memory(out)
}

// closed sends requests as fast as they are answered.
func (s *Subject) closed(ctx context.Context, out experiment.Sample) error {
	r, used, err := s.phase(ctx, load.Options{Connections: s.Phases.Connections, Duration: s.Phases.Closed})
	if err != nil {
		return err
	}
	out["qps"], out["closed_p50"], out["closed_p99"] = r.QPS, r.P50, r.P99
	out["failed"] += float64(r.Failed)
	out["cpu_app"], out["cpu_load"] = thousand(used.Backend, r), 1e6*r.CPU/float64(r.Requests)
	if len(s.Sidecars()) == 0 {
		return nil
	}
	out["cpu"] = thousand(used.Envoys(), r)
	if s.Client != nil {
		out["cpu_client"] = thousand(used.Client, r)
	}
	if s.Server != nil {
		out["cpu_server"] = thousand(used.Server, r)
	}
	return nil
}

// fixed sends requests at a rate.
func (s *Subject) fixed(ctx context.Context, out experiment.Sample, rate int) error {
	r, used, err := s.phase(ctx, load.Options{Connections: s.Phases.RateConnections, Rate: float64(rate), Duration: s.Phases.Fixed, OpenLoop: s.Phases.OpenLoop})
	if err != nil {
		return err
	}
	out[fmt.Sprintf("p50_%d", rate)], out[fmt.Sprintf("p99_%d", rate)] = r.P50, r.P99
	out["failed"] += float64(r.Failed)
	if len(s.Sidecars()) > 0 {
		out[fmt.Sprintf("cpu_%d", rate)] = thousand(used.Envoys(), r)
	}
	return nil
}

func (s *Subject) phase(ctx context.Context, o load.Options) (*load.Result, Usage, error) {
	before, err := s.Usage()
	if err != nil {
		return nil, Usage{}, err
	}
	r, err := s.Load(ctx, o)
	if err != nil {
		return nil, Usage{}, err
	}
	if r.Requests == 0 {
		return nil, Usage{}, fmt.Errorf("no request was answered in %s", o.Duration)
	}
	after, err := s.Usage()
	return r, after.Since(before), err
}

// thousand returns the CPU time of 1000 requests in milliseconds. It includes that of opening connections.
func thousand(d time.Duration, r *load.Result) float64 {
	return d.Seconds() * 1e6 / float64(r.Requests)
}

// memory adds the memory of the larger Envoy, after the load.
func (s *Subject) memory(out experiment.Sample) error {
	for _, x := range s.Sidecars() {
		m, err := child.MemoryOf(x.Pid)
		if err != nil {
			return err
		}
		out["rss"] = max(out["rss"], float64(m.RSS)/(1<<20))
	}
	return nil
}
