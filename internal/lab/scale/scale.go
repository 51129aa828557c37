// Package scale measures one control plane with up to tens of thousands of proxies, and what happens when one of two is
// killed: moonsail-lab scale.
//
// A variant is a number of simulated proxies. Each connects at once, gets changed routes, loses its control plane to
// SIGKILL, and connects again. At the end every proxy is compared with a fresh one and with the source. Variants are measured one
// after the other, because only one fits into the memory of the machine.
package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Options configure a run.
type Options struct {
	Programs child.Programs
	Services int
	Seen     int   // services that a proxy sees by its Sidecar resource; 0: all
	Sizes    []int // proxies on one control plane, ascending
	Each     int   // proxies on each of two control planes, of which one is killed; 0: not measured
	Changes  int   // measured changes of a route
	Limit    time.Duration
}

// DefaultOptions returns the sizes of docs/performance.md.
func DefaultOptions() Options {
	return Options{Services: 2000, Sizes: []int{1000, 2500, 5000, 10_000, 20_000}, Each: 5000, Changes: 5, Limit: 30 * time.Minute}
}

// Check validates the options.
func (o *Options) Check() error {
	if o.Services < 1 || o.Changes < 1 || o.Each < 0 || o.Seen < 0 || len(o.Sizes) == 0 || slices.Min(o.Sizes) < 1 || !slices.IsSorted(o.Sizes) {
		return errors.New("--services, --changes and each number of --proxies must be at least 1, --proxies ascending, and --pair and --seen not negative")
	}
	return nil
}

// files returns how many files a process of the run may have open: its connections, and some.
func (o *Options) files() uint64 {
	return uint64(max(o.Sizes[len(o.Sizes)-1], 2*o.Each) + 400) //nolint:gosec // positive
}

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	e := &experiment.Experiment{
		Name: "scale", Title: "Many proxies", About: about, Metrics: metrics, Rounds: 1, Expect: time.Minute,
		Facts: []string{
			fmt.Sprintf("%d services; %s; a directory of YAML as the source; plain text", o.Services, seenBy(o.Seen)),
			"The control plane and all simulated proxies share the CPUs",
		},
		Plots: []experiment.Plot{
			{Title: "Last ACK of a changed route", Metric: "route", X: "proxies", About: "From the write of the file until the last proxy has written its ACK; median."},
			{Title: "All proxies connect", Metric: "connect", X: "proxies", About: "From nothing, at once, until each has all resources."},
			{Title: "All proxies reconnect after SIGKILL", Metric: "reconnect", X: "proxies", About: "From the moment when the new process is ready."},
			{Title: "Peak memory of the control plane", Metric: "peak", X: "proxies"},
			{Title: "CPU time of the control plane for a changed route", Metric: "route_cpu", X: "proxies"},
		},
	}
	for _, n := range o.Sizes {
		e.Variants = append(e.Variants, experiment.Variant{
			Name: fmt.Sprintf("%d proxies", n), Series: "one control plane", X: float64(n),
			About: "on one control plane, which is killed and started again",
			Start: func(context.Context) (experiment.Subject, error) {
				return &subject{o: &o, proxies: n, measure: one}, nil
			},
		})
	}
	if o.Each > 0 {
		e.Variants = append(e.Variants, experiment.Variant{
			Name:  fmt.Sprintf("2 x %d proxies", o.Each),
			About: "on two control planes; one is killed, and its proxies connect to the other",
			Start: func(context.Context) (experiment.Subject, error) {
				return &subject{o: &o, proxies: o.Each, measure: two}, nil
			},
		})
	}
	e.Before = func(context.Context) (func(), error) { return func() {}, session.RaiseFileLimit(o.files()) }
	return e
}

func seenBy(n int) string {
	if n == 0 {
		return "each proxy sees all"
	}
	return fmt.Sprintf("each proxy sees %d", n)
}

const about = "Simulated sidecars (delta ADS, a TCP connection each) connect at once, get changed routes, and connect again after their control plane was " +
	"killed. Lost resources count proxies that differ from a fresh one, and resources that differ from the source."

var metrics = []experiment.Metric{
	{Name: "connect", Title: "connect", Unit: "s", Better: experiment.Lower},
	{Name: "connect_cpu", Title: "CPU to connect", Unit: "s", Better: experiment.Lower},
	{Name: "bytes", Title: "bytes to a proxy", Unit: "MB", Better: experiment.Lower, Detail: true},
	{Name: "route", Title: "route, last ACK", Unit: "ms", Better: experiment.Lower},
	{Name: "route_cpu", Title: "CPU of a route", Unit: "ms", Better: experiment.Lower},
	{Name: "reconnect", Title: "reconnect", Unit: "s", Better: experiment.Lower},
	{Name: "peak", Title: "peak memory", Unit: "MB", Better: experiment.Lower},
	{Name: "memory", Title: "memory of a proxy", Unit: "KiB", Better: experiment.Lower},
	{Name: "lost", Title: "lost resources", Unit: "", Better: experiment.Lower},
}

// subject measures one number of proxies. It has processes only while it measures.
type subject struct {
	o       *Options
	proxies int
	measure func(context.Context, *subject, string, experiment.Sample) error
}

// Measure implements experiment.Subject. It does not warm up.
func (s *subject) Measure(ctx context.Context, r experiment.Round) (experiment.Sample, error) {
	out := experiment.Sample{}
	if r.Warming {
		return out, nil
	}
	dir, err := meshfiles.TempDir("moonsail-scale-*")
	if err != nil {
		return nil, err
	}
	err = s.measure(ctx, s, dir, out)
	_ = os.RemoveAll(dir) // the system removes it in the end
	return out, err
}

// Stop implements experiment.Subject.
func (*subject) Stop() {}

func (s *subject) open(ctx context.Context, dir string) (*session.Session, error) {
	c := &session.Config{Programs: s.o.Programs, ConnectLimit: s.o.Limit}
	return session.Open(ctx, c, filepath.Join(dir, "first"), meshfiles.Shape{Services: s.o.Services, Proxies: s.proxies, Seen: s.o.Seen, Replicas: 1})
}

// one measures one control plane.
func one(ctx context.Context, s *subject, dir string, out experiment.Sample) error {
	first, err := s.open(ctx, dir)
	if err != nil {
		return err
	}
	defer first.Close()
	if err := first.Connect(ctx, false); err != nil {
		return err
	}
	note(out, &first.Connected.Subject)
	if err := s.routes(ctx, first, nil, out); err != nil {
		return err
	}
	peak := first.CP.Memory().Peak
	first.CP.Fleet.Shut()
	first.CP.Process.Kill()
	if err := first.StartControlPlane(ctx, first.CP.Process.Addr(), first.CP.Process.HTTP()); err != nil {
		return err
	}
	back, err := first.ConnectAll(ctx, &first.CP.Subject, first.CP.Fleet.Open)
	if err != nil {
		return err
	}
	out["reconnect"] = back.Last.P50 / 1000
	out["peak"] = float64(max(peak, back.PeakRSS)) / 1e6
	return lost(ctx, out, first)
}

// note records how proxies connected.
func note(out experiment.Sample, side *results.Side) {
	out["connect"], out["connect_cpu"] = side.Last.P50/1000, side.CPU.P50/1000
	out["bytes"], out["memory"] = side.Concerned.Bytes/1e6, side.ProxyMemory/1024
}

// routes changes routes, and follows each change to the last proxy. beside is another fleet, or nil.
func (s *subject) routes(ctx context.Context, first *session.Session, beside *session.Subject, out experiment.Sample) error {
	var last, cpu []float64
	for i := range s.o.Changes + 1 {
		c, err := first.Mesh.ChangeRoute(i % s.o.Services)
		if err != nil {
			return err
		}
		sample, err := measureBoth(ctx, first, beside, &c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.What, err)
		}
		if i > 0 { // the first is a warm-up
			last, cpu = append(last, sample.Last), append(cpu, sample.CPU)
		}
	}
	slices.Sort(last)
	slices.Sort(cpu)
	out["route"], out["route_cpu"] = last[len(last)/2], cpu[len(cpu)/2]
	return nil
}

// measureBoth measures a change until the last proxy of both fleets has it.
func measureBoth(ctx context.Context, first *session.Session, beside *session.Subject, c *meshfiles.Change) (results.Sample, error) {
	var other *fleet.Round
	apply := c.Apply
	if beside != nil {
		other = beside.Fleet.Expect(nil, c.Wants...)
		defer beside.Fleet.Forget()
		apply = func() error { other.Restart(); return c.Apply() }
	}
	sample, err := first.CP.Measure(ctx, c.Wants, apply)
	if err != nil || beside == nil {
		return sample, err
	}
	if err := beside.Await(ctx, other, session.ChangeTime); err != nil {
		return sample, err
	}
	for _, l := range results.AllMillis(other.Latencies()) {
		sample.Last = max(sample.Last, l)
	}
	return sample, nil
}

// lost compares every proxy with a fresh one and with the source.
func lost(ctx context.Context, out experiment.Sample, sessions ...*session.Session) error {
	for _, s := range sessions {
		state, err := s.FinalState(ctx)
		if err != nil {
			return err
		}
		if out["lost"] += float64(state.Wrong); state.Wrong > 0 {
			return fmt.Errorf("%d of %d proxies or resources are wrong: %v", state.Wrong, state.Proxies, state.First)
		}
	}
	return nil
}
