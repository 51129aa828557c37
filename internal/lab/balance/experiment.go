package balance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/bench"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Names of metrics. The connections of each worker are in samples, too: worker_0, ...
const (
	metricIdle    = "idle"
	metricNoticed = "noticed"
	metricCPU     = "cpu_max_to_mean"
	metricQPS     = "qps"
	metricP99     = "p99_ms"
)

// Uneven is the busiest worker's connections by the mean.
const Uneven = "max_to_mean"

// mode is a way in which connections come to workers.
type mode struct {
	name, about string
	setup       func(*pair.Setup)
}

const (
	modeDefault = "moonsail"
	modeKernel  = "kernel"
	modeShared  = "one socket"
)

// oneSocket has all workers of the server accept from one socket, as Envoy did before 1.20 and
// the report's.
const oneSocket = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: one-socket, namespace: $NAMESPACE}
spec:
  workloadSelector: {labels: {app: server}}
  configPatches:
  - {applyTo: LISTENER, match: {context: SIDECAR_INBOUND}, patch: {operation: MERGE, value: {enable_reuse_port: false}}}`

func modes() []mode {
	return []mode{
		{modeDefault, "as the control plane generates it: exact_balance", func(*pair.Setup) {}},
		{modeKernel, "without exact_balance: a socket for each worker (SO_REUSEPORT), among which the kernel chooses by a hash", func(s *pair.Setup) { s.AnyWorker = true }},
		{modeShared, "one socket for all workers (enable_reuse_port: false): the first worker that wakes accepts", func(s *pair.Setup) {
			s.AnyWorker, s.Objects = true, []string{oneSocket}
		}},
	}
}

// protocols are how clients speak to the sidecar.
var protocols = []struct {
	name  string
	http2 bool
}{{"HTTP/1.1", false}, {"HTTP/2", true}}

// barFrom is the number of connections from which on, of each protocol, balance is promised.
const (
	barFrom  = 64
	barLimit = 1.1
)

func nameOf(mode, protocol string, connections int) string {
	return fmt.Sprintf("%s, %s, %d", mode, protocol, connections)
}

// New makes the experiment.
func New(o Options) *experiment.Experiment {
	e := &experiment.Experiment{
		Name: "balance", Title: "Connections of worker threads",
		About: `One worker with eleven times the connections of the others kept a sidecar at a fifth of its throughput.
A server's sidecar is asked by many connections at once, and Envoy's statistics tell how many each of its workers has
(listener.ADDRESS.worker_N.downstream_cx_active). What counts is the busiest worker's share: its connections by the mean.
1 is even; with as many workers as here, all on one worker would be the number of workers. ` + aboutModes(),
		Metrics: []experiment.Metric{
			{Name: Uneven, Title: "busiest/mean", Unit: "x", Better: experiment.Lower},
			{Name: metricIdle, Title: "idle workers", Unit: "", Better: experiment.Lower, Absolute: true},
			{Name: metricNoticed, Title: "flagged UNEVEN", Unit: "of 1", Absolute: true},
			{Name: metricCPU, Title: "CPU busiest/mean", Unit: "x", Better: experiment.Lower},
			{Name: metricQPS, Title: "requests/s", Unit: "requests/s", Better: experiment.Higher},
			{Name: metricP99, Title: "p99", Unit: "ms", Better: experiment.Lower},
		},
		Facts: []string{
			fmt.Sprintf("server sidecar only, plain text, %d workers, Fortio at its highest rate for %s", o.Workers, o.Phase),
			"flagged UNEVEN: 'moonsail proxies --workers' would report it",
		},
		Rounds: o.Rounds, Expect: o.Expect, Envoy: o.Pair.Envoy,
	}
	b := &bench.Bench{Options: o.Pair, List: setups(o.Workers)}
	e.Before = b.Before
	for _, p := range protocols {
		for _, m := range modes() {
			for _, n := range o.Connections {
				e.Variants = append(e.Variants, variant(&o, b, m.name, p.name, p.http2, n))
			}
		}
		compare(e, p.name, o.Connections)
	}
	e.Finish = func(r *experiment.Report) { addCharts(r, &o) }
	return e
}

// aboutModes explains them.
func aboutModes() string {
	var list []string
	for _, m := range modes() {
		list = append(list, fmt.Sprintf("%q: %s", m.name, m.about))
	}
	return strings.Join(list, "; ") + "."
}

// setups are the sidecars, one a mode.
func setups(workers int) (out []bench.Named) {
	for _, m := range modes() {
		s := alone(workers)
		m.setup(&s)
		out = append(out, bench.Named{Name: m.name, Setup: s})
	}
	return out
}

// alone is a server's sidecar whose statistics tell of its workers.
func alone(workers int) pair.Setup {
	return pair.Setup{Server: true, Concurrency: workers, ServerAnnotations: map[string]string{statsAnnotation: statsWanted}}
}

func variant(o *Options, b *bench.Bench, mode, protocol string, http2 bool, connections int) experiment.Variant {
	return experiment.Variant{
		Name: nameOf(mode, protocol, connections), Series: mode + ", " + protocol, X: float64(connections),
		Start: func(context.Context) (experiment.Subject, error) {
			return newSubject(b.Pair(mode), http2, connections, o.Phase)
		},
	}
}

// compare makes bars of all numbers that there is a promise for, and tells differences of the
// least and the most of them.
func compare(e *experiment.Experiment, protocol string, connections []int) {
	first := slices.IndexFunc(connections, func(n int) bool { return n >= barFrom })
	for i, n := range connections {
		if n < barFrom {
			continue
		}
		base := nameOf(modeDefault, protocol, n)
		for _, m := range []string{modeKernel, modeShared} {
			if i != first && i != len(connections)-1 {
				continue
			}
			e.Compare = append(e.Compare, experiment.Pair{Variant: nameOf(m, protocol, n), Base: base, Metrics: []string{Uneven, metricQPS, metricP99}})
		}
		e.Targets = append(e.Targets, experiment.Target{What: fmt.Sprintf("%s, %d connections: even", protocol, n), Metric: Uneven, Variant: base, Limit: barLimit})
	}
	addPlots(e, protocol, connections)
}

func addPlots(e *experiment.Experiment, protocol string, connections []int) {
	most := experiment.Plot{Title: "Busiest worker's connections by the mean, " + protocol, Metric: Uneven, X: "connections", LogX: true,
		About: "1 is even. With one socket, most connections go to the worker that wakes first. The kernel's hash is uneven by chance, and more so with fewer connections."}
	qps := experiment.Plot{Title: "Requests per second, " + protocol, Metric: metricQPS, X: "connections", LogX: true}
	for _, m := range modes() {
		for _, n := range connections {
			most.Variants = append(most.Variants, nameOf(m.name, protocol, n))
		}
	}
	qps.Variants = most.Variants
	e.Plots = append(e.Plots, most, qps)
}

// The report's annotation. Sidecars keep downstream_cx_active without it, too, by worker.
const (
	statsAnnotation = "sidecar.istio.io/statsInclusionRegexps"
	statsWanted     = `listener\..*\.downstream_cx_(total|active),` + protocolStats
	// protocolStats tell which protocol connections speak.
	protocolStats = `http\.inbound_.*\.downstream_cx_http[12]_total`
)
