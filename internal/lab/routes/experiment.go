package routes

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
)

// Names of metrics. Variants of scope keys have only the last two.
const (
	metricQuiet50    = "quiet_p50_ms"
	metricQuiet99    = "quiet_p99_ms"
	metricChanging50 = "changing_p50_ms"
	metricChanging99 = "changing_p99_ms"
	metricRatio      = "p99_ratio"
	metricACK50      = "ack_p50_ms"
	metricACK99      = "ack_p99_ms"
	metricChanges    = "changes_per_s"
	metricBytes      = "bytes"
	metricMain       = "main_cpu_ms"
	metricWorkers    = "worker_cpu_ms"
	metricRequest    = "request_us"
	metricReady      = "ready_ms"
	metricHeap       = "heap_mb"
	metricFailed     = "failed"
	metricWrong      = "wrong"
	metricKey        = "key_us"
	metricKey50      = "key_p50_us"
)

// Targets, and the p99 without changes above which the machine is too busy for a meaningful ratio.
const (
	ratioLimit = 1.5
	ackLimit   = 5.0 // ms
	bytesLimit = 3 << 10
	quietLimit = 5.0 // ms
)

var metrics = []experiment.Metric{
	{Name: metricQuiet99, Title: "p99 quiet", Unit: "ms", Better: experiment.Lower},
	{Name: metricChanging99, Title: "p99 changing", Unit: "ms", Better: experiment.Lower},
	{Name: metricRatio, Title: "p99 ratio", Unit: "x", Better: experiment.Lower},
	{Name: metricACK50, Title: "ACK p50", Unit: "ms", Better: experiment.Lower},
	{Name: metricBytes, Title: "bytes", Unit: "B", Better: experiment.Lower},
	{Name: metricMain, Title: "main CPU a change", Unit: "ms", Better: experiment.Lower},
	{Name: metricRequest, Title: "us a request", Unit: "us", Better: experiment.Lower, Absolute: true},
	{Name: metricHeap, Title: "heap", Unit: "MB", Better: experiment.Lower},
	{Name: metricKey, Title: "key, us a request", Unit: "us", Better: experiment.Lower, Absolute: true},
	{Name: metricQuiet50, Title: "p50 quiet", Unit: "ms", Better: experiment.Lower, Detail: true},
	{Name: metricChanging50, Title: "p50 changing", Unit: "ms", Better: experiment.Lower, Detail: true},
	{Name: metricACK99, Title: "ACK p99", Unit: "ms", Better: experiment.Lower, Detail: true},
	{Name: metricChanges, Title: "changes/s", Unit: "1/s", Detail: true},
	{Name: metricWorkers, Title: "workers' CPU a change", Unit: "ms", Detail: true},
	{Name: metricReady, Title: "ready", Unit: "ms", Detail: true},
	{Name: metricFailed, Title: "failed requests", Better: experiment.Lower, Absolute: true, Detail: true},
	{Name: metricWrong, Title: "wrong routes", Better: experiment.Lower, Absolute: true, Detail: true},
	{Name: metricKey50, Title: "key, p50", Unit: "us", Detail: true},
}

func nameOf(layout string, hosts int) string { return fmt.Sprintf("%s, %d", layout, hosts) }

// New returns the experiment.
func New(o Options) *experiment.Experiment {
	e := &experiment.Experiment{
		Name: "routes", Title: "Changes of routes in Envoy",
		About: `One listener with many virtual hosts is served in several layouts, each to a separate Envoy. Requests are sent at a fixed rate, first without
changes and then while one virtual host after the other changes. At the end, requests check that some routes are the newest.
Rows "key" measure the cost of computing the key of a scope for each request, with direct responses, at the highest rate.`,
		Metrics: metrics, Plots: plots(), Rounds: o.Rounds, Expect: o.expect(), Envoy: o.Envoy,
		Facts: []string{fmt.Sprintf("%d workers, %d requests/s on %d connections, up to %d changes/s, phases of %s", o.Workers, o.Rate, o.Conns, o.Changes, o.Phase)},
	}
	b := &bench{o: &o}
	e.Before = b.before
	layouts, _ := choose(o.Layouts) // Check has validated them
	for _, n := range o.Hosts {
		for _, l := range layouts {
			e.Variants = append(e.Variants, b.variant(l, n))
			e.Targets = append(e.Targets, experiment.Target{What: nameOf(l.Name, n) + ": routes that are not the newest", Metric: metricWrong, Variant: nameOf(l.Name, n)})
		}
		b.compare(e, layouts, n)
	}
	if o.Keys > 0 {
		b.addKeys(e)
	}
	e.Finish = finish
	return e
}

func plots() []experiment.Plot {
	return []experiment.Plot{
		{Title: "From a change to its ACK, p50", Metric: metricACK50},
		{Title: "p99 of requests while routes change, divided by p99 without changes", Metric: metricRatio, About: "1: changes have no effect."},
		{Title: "CPU time of Envoy's main thread for a change", Metric: metricMain},
		{Title: "Memory that Envoy has allocated", Metric: metricHeap},
		{Title: "CPU time of a worker for a request, by the expression of a scope's key", Metric: metricKey},
	}
}

// split is the layout of the product from derive.AutoSharding.From virtual hosts on.
func split() string { return fmt.Sprintf("buckets-%d", 1<<derive.AutoSharding.Bits) }

// compare adds the targets of the product's layouts on large enough meshes, and compares all layouts with a single
// route configuration.
func (b *bench) compare(e *experiment.Experiment, layouts []Layout, n int) {
	has := func(name string) bool {
		return slices.ContainsFunc(layouts, func(l Layout) bool { return l.Name == name })
	}
	for _, name := range []string{split(), "product-auto"} {
		if !has(name) || n < derive.AutoSharding.From {
			continue
		}
		p := nameOf(name, n)
		e.Targets = append(e.Targets,
			experiment.Target{What: p + ": p99 with changes / without", Metric: metricRatio, Variant: p, Limit: ratioLimit},
			experiment.Target{What: p + ": from a change to its ACK, p50", Metric: metricACK50, Variant: p, Limit: ackLimit},
			experiment.Target{What: p + ": bytes of a change", Metric: metricBytes, Variant: p, Limit: bytesLimit})
	}
	for _, l := range layouts {
		if has("rds") && l.Name != "rds" {
			e.Compare = append(e.Compare, experiment.Pair{Variant: nameOf(l.Name, n), Base: nameOf("rds", n),
				Metrics: []string{metricRatio, metricACK50, metricMain, metricRequest, metricQuiet50}})
		}
	}
}

// finish adds a note about ratios that a busy machine makes meaningless.
func finish(r *experiment.Report) {
	for _, v := range r.Variants {
		if s := v.Summary[metricQuiet99]; s.Median > quietLimit {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: p99 was %.1f ms while nothing changed: the machine was too busy, so that its ratio means nothing", v.Name, s.Median))
		}
	}
}

// Wrong returns how many routes were not the newest, in all rounds.
func Wrong(r *experiment.Report) (n int) {
	for _, v := range r.Variants {
		for _, s := range v.Samples {
			n += int(s[metricWrong])
		}
	}
	return n
}

// bench has what all variants share.
type bench struct {
	o    *Options
	up   *upstream
	keys *keyBench
}

// before starts what all variants share. It reduces garbage collection: meshes are live heap, and collecting it would
// disturb the load.
func (b *bench) before(ctx context.Context) (stop func(), err error) {
	percent := debug.SetGCPercent(800)
	stop = func() {
		if b.keys != nil {
			b.keys.stop()
		}
		if b.up != nil {
			b.up.stop()
		}
		debug.SetGCPercent(percent)
	}
	if b.up, err = startUpstream(ctx); err == nil && b.o.Keys > 0 {
		b.keys, err = startKeys(ctx, b.o, b.up)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (b *bench) variant(l Layout, hosts int) experiment.Variant {
	return experiment.Variant{Name: nameOf(l.Name, hosts), About: l.About, Series: l.Name, X: float64(hosts),
		Start: func(ctx context.Context) (experiment.Subject, error) { return startSubject(ctx, b.o, l, hosts, b.up) }}
}
