package routes

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/moonsail/moonsail/internal/envoy"
	"github.com/moonsail/moonsail/internal/lab/openloop"
)

// Run measures.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	// The meshes are live heap; collecting it would be the loudest neighbour of the load.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	begun := time.Now()
	r := &Report{Schema: 1, Begun: begun.Format(time.RFC3339), Version: o.Version, Envoy: envoy.Version,
		CPUs: runtime.NumCPU(), Workers: o.Workers, Rate: o.Rate, Changes: o.Changes, Quick: o.Quick}
	up, err := startUpstream(ctx)
	if err != nil {
		return nil, err
	}
	defer up.stop()
	for _, n := range o.Hosts {
		results, err := measure(ctx, &o, n, up)
		if err != nil {
			return nil, fmt.Errorf("%d virtual hosts: %w", n, err)
		}
		r.Results = append(r.Results, results...)
	}
	if o.Keys > 0 {
		if r.Keys, err = measureKeys(ctx, &o, up); err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
	}
	r.Took = time.Since(begun).Seconds()
	return r, nil
}

// measure compares layouts. All their Envoys run at the same time, but one only is loaded,
// so that what disturbs the machine for a while disturbs all of them.
func measure(ctx context.Context, o *Options, hosts int, up *upstream) ([]Result, error) {
	chosen, err := choose(o.Layouts)
	if err != nil {
		return nil, err
	}
	var subjects []*subject
	defer func() {
		for _, s := range subjects {
			s.stop()
		}
	}()
	for _, l := range chosen {
		o.progress("%d virtual hosts, %s: starting", hosts, l.Name)
		s, err := startSubject(ctx, o, l, hosts, up)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	for round := range o.Rounds + 1 { // the first one warms up
		for _, s := range subjects {
			o.progress("%d virtual hosts, %s: round %d of %d", hosts, s.name, round, o.Rounds)
			if err := s.round(ctx, o, round == 0); err != nil {
				return nil, fmt.Errorf("layout %s: %w", s.name, err)
			}
		}
	}
	return conclude(ctx, subjects)
}

func (s *subject) round(ctx context.Context, o *Options, warming bool) error {
	d := o.Phase
	if warming {
		d = min(d, time.Second)
	}
	quiet, err := s.run(ctx, o, d, false)
	if err != nil {
		return err
	}
	changing, err := s.run(ctx, o, d, true)
	if err != nil || warming {
		return err
	}
	s.quiet, s.changing = append(s.quiet, *quiet), append(s.changing, *changing)
	return nil
}

func conclude(ctx context.Context, subjects []*subject) (out []Result, err error) {
	for _, s := range subjects {
		r := s.result()
		if r.Allocated, r.RSS, err = s.proxy.memory(ctx); err != nil {
			return nil, err
		}
		if r.Wrong, err = s.wrong(ctx); err != nil {
			return nil, err
		}
		if len(out) > 0 && out[0].Layout == "rds" {
			r.AddedCPU, r.AddedLatency = r.RequestCPU-out[0].RequestCPU, (r.Quiet.P50-out[0].Quiet.P50)*1000
		}
		out = append(out, r)
	}
	return out, nil
}

func (s *subject) result() Result {
	quiet, changing := sumOf(s.quiet), sumOf(s.changing)
	r := Result{
		Layout: s.name, Hosts: len(s.mesh.versions), Ready: millis(s.ready),
		Quiet: loadOf(s.quiet), Changing: loadOf(s.changing), ACK: spreadOf(changing.acks),
		Rate: per(float64(len(changing.acks)), changing.took.Seconds()), Bytes: per(float64(changing.bytes), float64(len(changing.acks))),
		RequestCPU: per(micros(quiet.cpu.AllWorkers()), float64(len(quiet.outcome.Latencies))),
	}
	r.Ratio = per(r.Changing.P99, r.Quiet.P99)
	// What the same load takes without changes is not the changes'.
	n, same := float64(len(changing.acks)), per(float64(changing.took), float64(quiet.took))
	r.MainCPU = per(millis(changing.cpu.Main)-millis(quiet.cpu.Main)*same, n)
	r.WorkerCPU = per(millis(changing.cpu.AllWorkers())-millis(quiet.cpu.AllWorkers())*same, n)
	return r
}

func sumOf(phases []phase) (out phase) {
	out.outcome = &openloop.Outcome{}
	for _, p := range phases {
		out.outcome.Latencies = append(out.outcome.Latencies, p.outcome.Latencies...)
		out.cpu = out.cpu.Add(p.cpu)
		out.took += p.took
		out.acks = append(out.acks, p.acks...)
		out.bytes += p.bytes
	}
	return out
}

// loadOf takes the lower quartile of the phases' percentiles: neighbours on the machine only
// ever add to latencies.
func loadOf(phases []phase) (out Load) {
	var p50, p99 []time.Duration
	for _, p := range phases {
		p50, p99 = append(p50, percentile(p.outcome.Latencies, 0.5)), append(p99, percentile(p.outcome.Latencies, 0.99))
		out.Requests += len(p.outcome.Latencies)
		out.Failed += p.outcome.Failed
	}
	out.P50, out.P99 = millis(percentile(p50, 0.25)), millis(percentile(p99, 0.25))
	return out
}
