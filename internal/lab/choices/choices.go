// Package choices measures the cost of each choice in the generated configuration of a sidecar: moonsail-lab choices.
//
// A variant is a pair of sidecars that differs from Moonsail's default in one thing, set by an option of Istio's API or
// by an EnvoyFilter. Variants that differ in how connections begin are compared with a pair that opens a connection for
// each request.
package choices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Options configure a run.
type Options struct {
	pair.Terms
	// Only are the choices to measure, by the beginning of their names; none: all.
	Only []string
	// Own are additional choices, which are always measured: objects as YAML, by name. $NAMESPACE in them stands for
	// the pair's namespace.
	Own map[string]string
}

// DefaultOptions returns the sizes of docs/performance.md.
func DefaultOptions() Options {
	return Options{Terms: pair.Terms{Concurrency: 2, Connections: 64, Rate: 1000}}
}

// Check validates the options.
func (o *Options) Check() error {
	if err := o.Terms.Check(); err != nil {
		return err
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(o.all(), func(c choice) bool { return strings.HasPrefix(c.name, name) }) {
			return fmt.Errorf("unknown choice %q: use %s", name, strings.Join(o.Names(), ", "))
		}
	}
	return nil
}

// Names returns the names of all choices.
func (o *Options) Names() (out []string) {
	for _, c := range o.all() {
		out = append(out, c.name)
	}
	return out
}

// Names of the variants that others are compared with.
const (
	Ours  = "Moonsail's"
	Fresh = "a connection for each request"
)

// lab is one experiment under construction.
type lab struct {
	Options
	mesh   *pair.Mesh
	phases pair.Phases
}

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	l := &lab{Options: o, phases: pair.Phases{
		Connections: o.Connections, Closed: 2 * time.Second,
		Rates: []int{o.Rate}, Fixed: 3 * time.Second, RateConnections: 16, OpenLoop: true,
	}}
	rounds := 11
	if o.Quick {
		l.phases.Closed, l.phases.Fixed, rounds = 300*time.Millisecond, 400*time.Millisecond, 3
	}
	e := &experiment.Experiment{
		Name: "choices", Title: "Cost of each choice in a sidecar's configuration", About: about, Quick: o.Quick,
		Envoy: o.Envoy, Rounds: rounds, Before: l.start, Metrics: l.metrics(), Plots: l.plots(),
		Facts: []string{
			fmt.Sprintf("Fortio (1.66), responses of 1 KB: %d connections at the highest rate for %s, then %d at %d/s at fixed times for %s; mTLS, %d workers (0: one for each CPU)",
				o.Connections, l.phases.Closed, l.phases.RateConnections, o.Rate, l.phases.Fixed, o.Concurrency),
			"The load, both Envoys and the application share the CPUs",
		},
	}
	l.variants(e)
	e.Expect = time.Duration(len(e.Variants)) * l.phases.Expect()
	return e
}

const about = "A load calls an application through a client's and a server's sidecar with mutual TLS, as Moonsail configures them, and through pairs that differ in one " +
	"choice each. Choices about the start of connections are compared with a pair that opens a connection between the sidecars for each request. " +
	"CPU is that of both Envoys."

func (l *lab) start(ctx context.Context) (stop func(), err error) {
	l.mesh, err = pair.Start(ctx, pair.Options{Programs: l.Programs, Envoy: l.Envoy, MeshConfig: pair.LogProviders})
	if err != nil {
		return nil, err
	}
	return l.mesh.Stop, nil
}

// metrics returns those of a pair, without those that compare with no sidecars at all.
func (l *lab) metrics() []experiment.Metric {
	out := slices.DeleteFunc(l.phases.Metrics(""), func(m experiment.Metric) bool { return m.From != nil })
	for i := range out {
		if n := out[i].Name; n == l.at("cpu") || n == l.at("p99") {
			out[i].Detail = false
		}
	}
	return out
}

// at returns the name of a metric at the fixed rate.
func (l *lab) at(metric string) string { return fmt.Sprintf("%s_%d", metric, l.Rate) }

// variants adds the selected choices, and the variants that they are compared with.
func (l *lab) variants(e *experiment.Experiment) {
	all := l.all()
	asked := func(c choice) bool {
		return len(l.Only) == 0 || l.Own[c.name] != "" || slices.ContainsFunc(l.Only, func(name string) bool { return strings.HasPrefix(c.name, name) })
	}
	for _, c := range all {
		base := slices.ContainsFunc(all, func(of choice) bool { return of.base == c.name && asked(of) })
		if !base && !asked(c) {
			continue
		}
		e.Variants = append(e.Variants, l.variant(c))
		if c.base != "" && asked(c) {
			e.Compare = append(e.Compare, experiment.Pair{Variant: c.name, Base: c.base, Metrics: []string{"qps", "cpu", l.at("cpu"), l.at("p99")}})
		}
	}
}

func (l *lab) variant(c choice) experiment.Variant {
	return experiment.Variant{Name: c.name, About: c.about, Start: func(ctx context.Context) (experiment.Subject, error) {
		s := c.setup
		s.Client, s.Server, s.Concurrency = true, true, l.Concurrency
		p, err := l.mesh.Pair(ctx, s)
		if err != nil {
			return nil, err
		}
		return &pair.Subject{Pair: p, Phases: l.phases}, nil
	}}
}

func (l *lab) plots() []experiment.Plot {
	return []experiment.Plot{
		{Title: "CPU time of the Envoys for 1000 requests", Metric: "cpu", About: "At the highest rate; both sidecars together. The least noisy of the metrics."},
		{Title: fmt.Sprintf("CPU time of the Envoys for 1000 requests at %d per second", l.Rate), Metric: l.at("cpu"), About: "Requests come one at a time."},
		{Title: "Highest rate of requests per second", Metric: "qps"},
		{Title: fmt.Sprintf("p99 at %d requests per second", l.Rate), Metric: l.at("p99")},
	}
}
