// Package throughput measures an application's throughput and latency with sidecars: moonsail-lab throughput.
// It repeats Aspen Mesh's experiment (Fortio through no, one and two sidecars, by number of worker threads), and
// compares with Istio's defaults on the same Envoy.
package throughput

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Options configure a run.
type Options struct {
	Programs    child.Programs
	Envoy       string
	Concurrency []int // worker threads of each Envoy; 0: one for each CPU
	Connections int
	Rates       []int
	Quick       bool
	// TargetsOnly measures only what the targets need, and that more often: fixed rates in an open loop, a workload that
	// sees few services of a large mesh, balance of connections.
	TargetsOnly bool
	Defect      bool // adds a slow filter to the sidecars of the targets, to test that the report shows it
}

// DefaultOptions returns the sizes of docs/performance.md.
func DefaultOptions() Options {
	return Options{Concurrency: []int{2, 4, 6, 0}, Connections: 64, Rates: []int{1000, 3000}}
}

// TargetsOptions returns options for about 30 rounds in 20 minutes.
func TargetsOptions() Options {
	return Options{Concurrency: []int{2}, Connections: 64, Rates: []int{1000}, TargetsOnly: true}
}

// QuickOptions returns options for a run of less than two minutes.
func QuickOptions() Options {
	return Options{Concurrency: []int{2}, Connections: 64, Rates: []int{1000}, Quick: true}
}

// Check validates the options.
func (o *Options) Check() error {
	switch {
	case len(o.Concurrency) == 0 || slices.Min(o.Concurrency) < 0 || slices.Max(o.Concurrency) > 64:
		return fmt.Errorf("concurrency %v: use numbers from 0 (one for each CPU) to 64", o.Concurrency)
	case o.Connections < 1 || o.Connections > 4096:
		return errors.New("connections: use 1 to 4096")
	case len(o.Rates) == 0 || slices.Min(o.Rates) < 10:
		return errors.New("rates: use at least 10 requests per second")
	}
	return nil
}

// Names of variants.
const (
	None  = "none"
	Empty = "an empty Envoy"
)

func server(n int) string { return fmt.Sprintf("server, plain text, %s", workers(n)) }
func plain(n int) string  { return fmt.Sprintf("both, plain text, %s", workers(n)) }
func mutual(n int) string { return fmt.Sprintf("both, mTLS, %s", workers(n)) }
func peer(n int) string   { return fmt.Sprintf("both, Istio's defaults, %s", workers(n)) }
func noLog(n int) string  { return fmt.Sprintf("both, Istio's defaults, no log, %s", workers(n)) }

func again(n int) string { return mutual(n) + ", again" }

func workers(n int) string {
	if n == 0 {
		return "all cores"
	}
	return fmt.Sprintf("%d workers", n)
}

// lab is one experiment under construction.
type lab struct {
	Options
	mesh   *pair.Mesh
	phases pair.Phases
	first  int // the concurrency of latencies and targets
}

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	l := &lab{Options: o, first: o.Concurrency[0]}
	l.phases = pair.Phases{Connections: o.Connections, Closed: 3 * time.Second, Rates: o.Rates, Fixed: 4 * time.Second, RateConnections: 16}
	rounds := 9
	if o.TargetsOnly {
		l.phases.Closed, l.phases.Fixed, l.phases.OpenLoop, rounds = 2*time.Second, 6*time.Second, true, 30
	}
	if o.Quick {
		l.phases.Closed, l.phases.Fixed, rounds = time.Second, 1500*time.Millisecond, 5
	}
	e := &experiment.Experiment{
		Name: "throughput", Title: "Throughput and latency with sidecars", About: about, Quick: o.Quick,
		Envoy: o.Envoy, Rounds: rounds, Before: l.start, Metrics: l.phases.Metrics(None),
		Facts: []string{
			fmt.Sprintf("Fortio (1.66) over HTTP/1.1 on loopback, responses of 1 KB: %d connections at the highest rate for %s, then %d at fixed rates for %s each",
				l.phases.Connections, l.phases.Closed, l.phases.RateConnections, l.phases.Fixed),
			loops(l.phases.OpenLoop),
			"The load, both Envoys and the application share the CPUs",
		},
	}
	if o.TargetsOnly {
		l.targets(e)
		return e
	}
	l.variants(e)
	l.compare(e)
	e.Plots = l.plots()
	return e
}

func loops(open bool) string {
	if open {
		return "At fixed rates the lab sends requests at fixed times (an open loop, without Fortio). Latencies count from these times"
	}
	return "At fixed rates Fortio sends the next request of a connection after the last response"
}

const about = "A load calls an application that answers at once: without sidecars, through the server's sidecar, and through both; " +
	"in plain text and with mutual TLS, by the number of Envoy's worker threads. moonsail agent starts Moonsail's sidecars, and moonsail serve " +
	"configures them. Istio's defaults are the same sidecars and the same Envoy with these differences: HTTP/1.1 between sidecars; the kernel chooses " +
	"workers; Istio's access log as text, to /dev/null, so that collecting it does not count; and Istio's other default features, as far as stock Envoy " +
	"has them: filters of gRPC statistics, faults and CORS, headers by which sidecars exchange their identities, tracing without a tracer, and " +
	"responses counted by cluster and code. The same logger counts requests in both."

func (l *lab) start(ctx context.Context) (stop func(), err error) {
	l.mesh, err = pair.Start(ctx, pair.Options{Programs: l.Programs, Envoy: l.Envoy, MeshConfig: pair.LogProviders, Services: l.services()})
	if err != nil {
		return nil, err
	}
	return l.mesh.Stop, nil
}

func (l *lab) variants(e *experiment.Experiment) {
	e.Variants = append(e.Variants,
		l.variant(None, "without sidecars", 0, true, pair.Setup{}),
		l.empty())
	for _, n := range l.Concurrency {
		e.Variants = append(e.Variants,
			l.variant(server(n), "", n, n == l.first, pair.Setup{Server: true}),
			l.variant(plain(n), "", n, n == l.first, pair.Setup{Client: true, Server: true}),
			l.variant(mutual(n), "", n, n == l.first, l.ours()))
	}
	e.Variants = append(e.Variants, l.variant(peer(l.first), "HTTP/1.1 between sidecars, no exact_balance, access log as text", l.first, true, Peer()))
	if !l.Quick {
		e.Variants = append(e.Variants, l.variant(noLog(l.first), "as above, without an access log", l.first, false, withoutLog()),
			l.variant(again(l.first), "the default again: the noise between equal pairs", l.first, false, l.ours()))
	}
	for _, v := range e.Variants {
		if v.Start != nil {
			e.Expect += l.phases.Closed + time.Second/4
		}
	}
	e.Expect += 5 * time.Duration(len(l.Rates)) * (l.phases.Fixed + time.Second/4) // of 5 variants
}

func (l *lab) empty() experiment.Variant {
	return experiment.Variant{Name: Empty, About: "memory of an Envoy without listeners and clusters", Start: func(ctx context.Context) (experiment.Subject, error) {
		return pair.StartEmpty(ctx, l.Envoy, l.first)
	}}
}

// ours is what Moonsail generates by default.
func (l *lab) ours() pair.Setup {
	s := pair.Setup{Client: true, Server: true, MTLS: true}
	if l.Defect {
		s.Objects = []string{slow}
	}
	return s
}

// variant returns a pair; only some are measured at fixed rates, too.
func (l *lab) variant(name, about string, n int, fixed bool, s pair.Setup) experiment.Variant {
	phases := l.phases
	if !fixed {
		phases.Rates = nil
	}
	s.Concurrency = n
	v := experiment.Variant{Name: name, About: about, Start: func(ctx context.Context) (experiment.Subject, error) {
		p, err := l.mesh.Pair(ctx, s)
		if err != nil {
			return nil, err
		}
		return &pair.Subject{Pair: p, Phases: phases}, nil
	}}
	v.Series, v.X = series(s), float64(n)
	return v
}

func series(s pair.Setup) string {
	switch {
	case s.HTTP1:
		return "both, Istio's defaults"
	case s.MTLS:
		return "both, mTLS"
	case s.Client:
		return "both, plain text"
	case s.Server:
		return "server"
	}
	return None
}

func (l *lab) compare(e *experiment.Experiment) {
	ours, theirs := mutual(l.first), peer(l.first)
	e.Compare = []experiment.Pair{
		{Variant: ours, Base: theirs, Metrics: l.compared()},
		{Variant: ours, Base: plain(l.first), Metrics: []string{"qps", "cpu"}},
	}
	if !l.Quick {
		e.Compare = append(e.Compare, experiment.Pair{Variant: ours, Base: noLog(l.first), Metrics: []string{"qps", "cpu"}},
			experiment.Pair{Variant: again(l.first), Base: ours, Metrics: []string{"qps", "cpu"}})
	}
	for _, n := range l.Concurrency[1:] {
		e.Compare = append(e.Compare, experiment.Pair{Variant: mutual(n), Base: ours, Metrics: []string{"qps", "cpu"}})
	}
	e.Targets = append(l.against(ours, theirs), experiment.Target{What: "Envoy's RSS beyond an empty one's", Metric: "rss", Variant: ours, Base: Empty, Limit: 30})
}

// compared are the metrics that compare a pair with Istio's defaults.
func (l *lab) compared() []string {
	at := fmt.Sprintf("_%d", l.Rates[0])
	return []string{"qps", "cpu", "rss", "cpu" + at, "added_p50" + at, "added_p99" + at}
}

// against returns the targets that compare with a pair with Istio's defaults.
func (l *lab) against(ours, theirs string) []experiment.Target {
	to := ", to " + strings.TrimPrefix(theirs, "both, ")
	return []experiment.Target{
		{What: "throughput of a pair with mTLS" + to, Metric: "qps", Variant: ours, Base: theirs, Limit: 1.3, AtLeast: true},
		{What: "Envoys' CPU for a request" + to, Metric: "cpu", Variant: ours, Base: theirs, Limit: 0.75},
		{What: fmt.Sprintf("p99 added at %d/s", l.Rates[0]) + to, Metric: fmt.Sprintf("added_p99_%d", l.Rates[0]), Variant: ours, Base: theirs, Limit: 0.8},
	}
}

func (l *lab) plots() []experiment.Plot {
	out := []experiment.Plot{
		{Title: "Highest rate of requests per second", Metric: "qps", About: "The share of the throughput without sidecars. More workers than CPUs bring no benefit."},
	}
	if len(l.Concurrency) > 1 {
		var names []string
		for _, n := range l.Concurrency {
			if n != 0 {
				names = append(names, server(n), plain(n), mutual(n))
			}
		}
		out = append(out, experiment.Plot{Title: "Requests per second, by worker threads", Metric: "qps", X: "worker threads of each Envoy", Variants: names,
			About: "The original report had 10, 15 and 20 thousand with 2, 4 and 6 workers on 8 CPUs."})
	}
	out = append(out, experiment.Plot{Title: "CPU time of the Envoys for 1000 requests", Metric: "cpu", About: "At the same load; both sidecars together."})
	for _, r := range l.Rates {
		for _, q := range []string{"p50", "p99"} {
			out = append(out, experiment.Plot{Title: fmt.Sprintf("%s that sidecars add at %d requests per second", q, r), Metric: fmt.Sprintf("added_%s_%d", q, r),
				About: "The difference to the same round without sidecars."})
		}
	}
	return append(out, experiment.Plot{Title: "Memory of an Envoy (RSS)", Metric: "rss", About: "The larger of the two, after the load."})
}
