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

// Names of metrics. Samples also have the connections of each worker: worker_0, ...
const (
	metricIdle    = "idle"
	metricNoticed = "noticed"
	metricCPU     = "cpu_max_to_mean"
	metricQPS     = "qps"
	metricP99     = "p99_ms"
)

// Uneven is the connections of the busiest worker divided by the mean.
const Uneven = "max_to_mean"

// mode is a way in which workers get connections.
type mode struct {
	name, about string
	setup       func(*pair.Setup)
}

const (
	modeDefault = "moonsail"
	modeKernel  = "kernel"
	modeShared  = "one socket"
)

// oneSocket makes all workers of the server accept from one socket, as Envoy before 1.20 and the report did.
const oneSocket = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: one-socket, namespace: $NAMESPACE}
spec:
  workloadSelector: {labels: {app: server}}
  configPatches:
  - {applyTo: LISTENER, match: {context: SIDECAR_INBOUND}, patch: {operation: MERGE, value: {enable_reuse_port: false}}}`

func modes() []mode {
	return []mode{
		{modeDefault, "the generated configuration: exact_balance", func(*pair.Setup) {}},
		{modeKernel, "without exact_balance: a socket for each worker (SO_REUSEPORT), among which the kernel chooses by a hash", func(s *pair.Setup) { s.AnyWorker = true }},
		{modeShared, "one socket for all workers (enable_reuse_port: false): the first worker that wakes accepts", func(s *pair.Setup) {
			s.AnyWorker, s.Objects = true, []string{oneSocket}
		}},
	}
}

// protocols are those of clients to the sidecar.
var protocols = []struct {
	name  string
	http2 bool
}{{"HTTP/1.1", false}, {"HTTP/2", true}}

// The target applies from targetFrom connections on, for each protocol.
const (
	targetFrom  = 64
	targetLimit = 1.1
)

func nameOf(mode, protocol string, connections int) string {
	return fmt.Sprintf("%s, %s, %d", mode, protocol, connections)
}

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	e := &experiment.Experiment{
		Name: "balance", Title: "Connections of worker threads",
		About: `In a published report, one worker had eleven times the connections of the others and limited a sidecar to a fifth of its throughput.
Here, many connections send requests to a server's sidecar. Envoy's statistics have the connections of each worker
(listener.ADDRESS.worker_N.downstream_cx_active). The measure is the busiest worker's connections divided by the mean.
1 is even; the number of workers means that one worker has all connections. ` + aboutModes(),
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

// aboutModes describes the modes.
func aboutModes() string {
	var list []string
	for _, m := range modes() {
		list = append(list, fmt.Sprintf("%q: %s", m.name, m.about))
	}
	return strings.Join(list, "; ") + "."
}

// setups returns the sidecars, one for each mode.
func setups(workers int) (out []bench.Named) {
	for _, m := range modes() {
		s := alone(workers)
		m.setup(&s)
		out = append(out, bench.Named{Name: m.name, Setup: s})
	}
	return out
}

// alone is a server's sidecar whose statistics are by worker.
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

// compare adds targets for the connections that they apply to, and compares the fewest and the most.
func compare(e *experiment.Experiment, protocol string, connections []int) {
	first := slices.IndexFunc(connections, func(n int) bool { return n >= targetFrom })
	for i, n := range connections {
		if n < targetFrom {
			continue
		}
		base := nameOf(modeDefault, protocol, n)
		for _, m := range []string{modeKernel, modeShared} {
			if i != first && i != len(connections)-1 {
				continue
			}
			e.Compare = append(e.Compare, experiment.Pair{Variant: nameOf(m, protocol, n), Base: base, Metrics: []string{Uneven, metricQPS, metricP99}})
		}
		e.Targets = append(e.Targets, experiment.Target{What: fmt.Sprintf("%s, %d connections: even", protocol, n), Metric: Uneven, Variant: base, Limit: targetLimit})
	}
	addPlots(e, protocol, connections)
}

func addPlots(e *experiment.Experiment, protocol string, connections []int) {
	most := experiment.Plot{Title: "Busiest worker's connections divided by the mean, " + protocol, Metric: Uneven, X: "connections", LogX: true,
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

// The report's annotation. Sidecars keep downstream_cx_active by worker without it, too.
const (
	statsAnnotation = "sidecar.istio.io/statsInclusionRegexps"
	statsWanted     = `listener\..*\.downstream_cx_(total|active),` + protocolStats
	// protocolStats show the protocol of connections.
	protocolStats = `http\.inbound_.*\.downstream_cx_http[12]_total`
)
