// Package filters measures what filters and logs cost a pair of sidecars: moonsail-lab filters. It repeats the
// comparison of Mark Zhu's report (no sidecars, no filters, native statistics, WASM), and adds Lua and access logs.
package filters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Options configure a run.
type Options struct{ pair.Terms }

// DefaultOptions returns the sizes of docs/performance.md.
func DefaultOptions() Options {
	return Options{pair.Terms{Concurrency: 2, Connections: 32, Rate: 1000}}
}

// Names of variants. Those that Mark Zhu's report also has are the report's.
const (
	Baseline = "baseline"
	NoneBoth = "none_both"
	Native   = "stats-native_both"
	WASM     = "stats-wasm_both"
	Lua      = "lua_both"
	LogText  = "log-text_both"
	LogJSON  = "log-json_both"
	Again    = "none_both, again"
)

// lab is one experiment under construction.
type lab struct {
	Options
	mesh   *pair.Mesh
	phases pair.Phases
	dir    string // of the WASM filter
}

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	l := &lab{Options: o, phases: pair.Phases{Connections: o.Connections, Closed: 3 * time.Second, Rates: []int{o.Rate}, Fixed: 4 * time.Second, RateConnections: 16}}
	rounds := 15
	if o.Quick {
		l.phases.Closed, l.phases.Fixed, rounds = 700*time.Millisecond, time.Second, 5
	}
	e := &experiment.Experiment{
		Name: "filters", Title: "Cost of filters and logs in a pair of sidecars", About: about, Quick: o.Quick,
		Envoy: o.Envoy, Rounds: rounds, Before: l.start, Metrics: l.metrics(), Plots: l.plots(),
		Facts: []string{
			fmt.Sprintf("Fortio (1.66), responses of 1 KB: %d connections at the highest rate for %s, then %d at %d/s for %s; mTLS, %d workers (0: one for each CPU)",
				l.phases.Connections, l.phases.Closed, l.phases.RateConnections, o.Rate, l.phases.Fixed, o.Concurrency),
			"The load, both Envoys and the application share the CPUs",
		},
	}
	l.variants(e)
	e.Expect = time.Duration(len(e.Variants)) * l.phases.Expect()
	return e
}

const about = "A load calls an application without sidecars (baseline), and through a client's and a server's sidecar with mutual TLS. The sidecars have " +
	"no filters of the mesh (none_both); Moonsail's metrics of requests from Envoy's native logger (stats-native_both); a WASM filter that reads 12 properties of " +
	"each request, counts it and records three histograms, as Istio's WASM statistics did; a Lua filter that adds two headers; or Istio's access log to " +
	"/dev/null, as text or JSON. Only stats-native_both has native metrics. EnvoyFilters insert the filters; Telemetry resources select logs and metrics."

func (l *lab) start(ctx context.Context) (stop func(), err error) {
	if l.dir, err = os.MkdirTemp("", "moonsail-filters-"); err != nil {
		return nil, err
	}
	l.mesh, err = pair.Start(ctx, pair.Options{Programs: l.Programs, Envoy: l.Envoy, MeshConfig: pair.LogProviders})
	if err != nil {
		_ = os.RemoveAll(l.dir) // the system removes it in the end
		return nil, err
	}
	return func() {
		l.mesh.Stop()
		_ = os.RemoveAll(l.dir) // as above
	}, nil
}

// metrics returns those of a pair, with latencies in the first table.
func (l *lab) metrics() []experiment.Metric {
	out := l.phases.Metrics(Baseline)
	for i := range out {
		m := &out[i]
		switch m.Name {
		case fmt.Sprintf("p50_%d", l.Rate), fmt.Sprintf("p99_%d", l.Rate):
			m.Detail = false
		case "share", "rss", fmt.Sprintf("added_p99_%d", l.Rate):
			m.Detail = true
		}
	}
	return out
}

func (l *lab) variants(e *experiment.Experiment) {
	e.Variants = []experiment.Variant{
		{Name: Baseline, About: "no sidecars", Start: func(ctx context.Context) (experiment.Subject, error) { return l.pair(ctx, pair.Setup{}) }},
		l.both(NoneBoth, "no metrics, logs or filters of the mesh", telemetry(false, "")),
		l.both(Native, "Moonsail's default: istio_requests_total and Istio's other metrics", telemetry(true, "")),
		l.wasm(),
		l.both(Lua, "a header on requests, one on responses", telemetry(false, ""), inserted("lua", lua)),
		l.both(LogText, "Istio's format", telemetry(false, "text")),
		l.both(LogJSON, "the same as JSON", telemetry(false, "json")),
	}
	if !l.Quick {
		e.Variants = append(e.Variants, l.both(Again, "the default again: the noise between equal pairs", telemetry(false, "")))
	}
	watched := []string{"qps", "cpu", fmt.Sprintf("p50_%d", l.Rate), fmt.Sprintf("p99_%d", l.Rate)}
	for _, v := range e.Variants[2:] {
		e.Compare = append(e.Compare, experiment.Pair{Variant: v.Name, Base: NoneBoth, Metrics: watched})
	}
	e.Compare = append(e.Compare, experiment.Pair{Variant: Native, Base: WASM, Metrics: watched})
	e.Targets = []experiment.Target{{What: "CPU with native statistics / with WASM", Metric: "cpu", Variant: Native, Base: WASM, Limit: 1}}
}

func (l *lab) both(name, about string, objects ...string) experiment.Variant {
	return experiment.Variant{Name: name, About: about, Start: func(ctx context.Context) (experiment.Subject, error) {
		return l.pair(ctx, pair.Setup{Client: true, Server: true, MTLS: true, Objects: objects})
	}}
}

func (l *lab) pair(ctx context.Context, s pair.Setup) (*pair.Subject, error) {
	s.Concurrency = l.Concurrency
	p, err := l.mesh.Pair(ctx, s)
	if err != nil {
		return nil, err
	}
	return &pair.Subject{Pair: p, Phases: l.phases}, nil
}

// wasm returns the variant with the WASM filter. If the filter cannot be built, the report states the reason.
func (l *lab) wasm() experiment.Variant {
	compiler, why := toolchain()
	return experiment.Variant{Name: WASM, About: "in Go, on V8", Skip: why, Start: func(ctx context.Context) (experiment.Subject, error) {
		file, err := build(ctx, compiler, l.dir)
		if err != nil {
			return nil, err
		}
		// Envoy keeps only statistics that a sidecar's matcher includes, and drops all others.
		include := map[string]string{"sidecar.istio.io/statsInclusionPrefixes": wasmPrefix}
		s, err := l.pair(ctx, pair.Setup{
			Client: true, Server: true, MTLS: true, ClientAnnotations: include, ServerAnnotations: include,
			Objects: []string{telemetry(false, ""), inserted("wasm", wasm(file))},
		})
		if err != nil {
			return nil, err
		}
		if err := counts(ctx, s.Pair); err != nil {
			s.Stop()
			return nil, err
		}
		return s, nil
	}}
}

// wasmPrefix is the prefix of Envoy for the filter's metrics, and the beginning of their names.
const wasmPrefix = "wasmcustom.labwasm"

// counts checks that the filters of both sidecars have counted requests.
func counts(ctx context.Context, p *pair.Pair) error {
	for _, s := range p.Sidecars() {
		n, err := counted(ctx, s)
		if err == nil && n == 0 {
			err = errors.New("no request was counted")
		}
		if err != nil {
			return fmt.Errorf("the WASM filter of the %s's sidecar: %w", s.Name, err)
		}
	}
	return nil
}

func counted(ctx context.Context, s *pair.Sidecar) (sum uint64, err error) {
	admin := envoy.NewAdmin(s.Admin)
	defer admin.Close()
	stats, err := admin.Stats(ctx, "labwasm_requests")
	for _, n := range stats {
		sum += n
	}
	return sum, err
}

func (l *lab) plots() []experiment.Plot {
	return []experiment.Plot{
		{Title: fmt.Sprintf("p50 at %d requests per second", l.Rate), Metric: fmt.Sprintf("p50_%d", l.Rate), About: "The figure of the original report: latency of a call, by configuration of the sidecars."},
		{Title: fmt.Sprintf("p99 at %d requests per second", l.Rate), Metric: fmt.Sprintf("p99_%d", l.Rate)},
		{Title: "CPU time of the Envoys for 1000 requests", Metric: "cpu", About: "At the highest rate; both sidecars together. The least noisy of the metrics."},
		{Title: "Highest rate of requests per second", Metric: "qps"},
	}
}
