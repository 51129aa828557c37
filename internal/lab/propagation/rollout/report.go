package rollout

import (
	"slices"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// Names of metrics. Those of distributions have a suffix of percents, for example _p50_ms.
const (
	metricDead     = "dead"
	metricDead99   = "dead_p99_ms"
	metricLeft     = "dead_left"
	metricRoute    = "route"
	metricChange   = "change"
	metricChange99 = "change_p99_ms"
	metricDepth    = "depth"
	metricCPU      = "cpu_s"
	metricRSS      = "rss_mb"
	metricBytes    = "received_mb"
	metricMessages = "responses"
	metricWrong    = "wrong"
	metricTook     = "took_s"
)

// compared are the metrics that compare settings with the default.
var compared = []string{"dead_p50_ms", metricDead99, "route_p50_ms", "change_p50_ms", metricChange99, metricCPU}

func stageKey(s changelog.Stage) string { return "stage_" + s.String() }
func depthKey(kind string) string       { return "depth_" + kind }
func waitKey(kind string) string        { return "wait_" + kind + "_ms" }
func workKey(kind string) string        { return "work_" + kind + "_ms" }

// percents are the percentiles of a distribution in a sample.
var percents = []struct {
	suffix, title string
	of            func(results.Spread) float64
}{
	{"_p50_ms", " p50", func(s results.Spread) float64 { return s.P50 }},
	{"_p90_ms", " p90", func(s results.Spread) float64 { return s.P90 }},
	{"_p99_ms", " p99", func(s results.Spread) float64 { return s.P99 }},
	{"_max_ms", " max", func(s results.Spread) float64 { return s.Max }},
}

// addSpread adds the number of values and their percentiles. Without values it adds nothing.
func addSpread(out experiment.Sample, name string, values []float64) {
	if len(values) == 0 {
		return
	}
	s := results.SpreadOf(values)
	out[name+"_n"] = float64(s.N)
	for _, p := range percents {
		out[name+p.suffix] = p.of(s)
	}
}

// addDead adds how long any proxy knew the addresses of dead pods.
func addDead(out experiment.Sample, list []known) {
	took, left := staleness(list)
	addSpread(out, metricDead, took)
	out[metricLeft] = float64(left)
}

// routeKind is the kind of objects of a trial in which routes change.
const routeKind = "VirtualService"

// metrics returns the columns. Percentiles that are not in shown are details.
func (x *trial) metrics() (out []experiment.Metric) {
	spread := func(name, title string, shown ...string) {
		for _, p := range percents {
			out = append(out, experiment.Metric{Name: name + p.suffix, Title: title + p.title, Unit: "ms", Better: experiment.Lower, Detail: !slices.Contains(shown, p.suffix)})
		}
		out = append(out, experiment.Metric{Name: name + "_n", Title: title + " n", Detail: true})
	}
	spread(metricDead, "dead pod known", "_p50_ms", "_p99_ms")
	if slices.Contains(x.kinds, routeKind) {
		spread(metricRoute, "route at all proxies", "_p50_ms")
	}
	spread(metricChange, "event to ACK", "_p50_ms", "_p99_ms")
	out = append(out,
		experiment.Metric{Name: metricDepth, Title: "longest queue", Unit: "objects", Better: experiment.Lower},
		experiment.Metric{Name: metricCPU, Title: "CPU", Unit: "s", Better: experiment.Lower},
		experiment.Metric{Name: metricBytes, Title: "MB to a proxy", Unit: "MB", Better: experiment.Lower},
		experiment.Metric{Name: metricRSS, Title: "peak RSS", Unit: "MB", Better: experiment.Lower},
		experiment.Metric{Name: metricLeft, Title: "known at the end", Unit: "pods", Better: experiment.Lower, Absolute: true, Detail: true},
		experiment.Metric{Name: metricWrong, Title: "wrong at the end", Unit: "proxies", Better: experiment.Lower, Absolute: true, Detail: true},
		experiment.Metric{Name: metricMessages, Title: "responses to a proxy", Unit: "", Detail: true},
		experiment.Metric{Name: metricTook, Title: "took", Unit: "s", Detail: true},
	)
	for _, s := range changelog.Stages {
		spread(stageKey(s), s.String())
	}
	for _, k := range x.kinds {
		out = append(out, queueMetrics(k)...)
	}
	return out
}

// queueMetrics are those of the events of one kind of objects.
func queueMetrics(kind string) []experiment.Metric {
	return []experiment.Metric{
		{Name: depthKey(kind), Title: kind + ": longest queue", Unit: "objects", Better: experiment.Lower, Detail: true},
		{Name: waitKey(kind), Title: kind + ": wait", Unit: "ms", Better: experiment.Lower, Detail: true},
		{Name: workKey(kind), Title: kind + ": work", Unit: "ms", Better: experiment.Lower, Detail: true},
	}
}

func plots() []experiment.Plot {
	return []experiment.Plot{
		{Title: "Time that a proxy knows a dead pod, p50", Metric: "dead_p50_ms"},
		{Title: "Time that a proxy knows a dead pod, p99", Metric: metricDead99},
		{Title: "Time of a route's change to the last proxy, p50", Metric: "route_p50_ms"},
		{Title: "From event to ACK, p99", Metric: metricChange99, About: "Reported by the control plane, for changes that at least one proxy received."},
		{Title: "CPU time of the control plane", Metric: metricCPU},
	}
}

// draw records the charts of a measurement.
func (x *trial) draw(s setting, list []known) {
	d := &drawn{known: experiment.Chart{Title: s.name}}
	d.known.Lines = []experiment.ChartLine{{Name: s.name, Points: thin(knownOver(list, x.recorder.begun), x.recorder.took, true)}}
	if x.CP.Process != nil {
		d.depth, d.stages = x.recorder.depthChart(), stacked(x.recorder.stageChart())
		d.depth.Title = s.name + ": " + d.depth.Title
		d.stages.Title = s.name + ": " + d.stages.Title + ", stacked"
	}
	x.pictures[s.name] = d
}

// finish adds the charts: medians by kind of object, and the first round over time.
func (x *trial) finish(r *experiment.Report) {
	for _, q := range []struct {
		title, unit string
		key         func(string) string
	}{
		{"Longest queue in the intake, by kind of object", "", depthKey},
		{"Time of an event in the intake, by kind of object", "ms", waitKey},
		{"Time to process an event, by kind of object", "ms", workKey},
	} {
		if c := x.byKind(r, q.title, q.unit, q.key); len(c.Bars) > 0 {
			r.Charts = append(r.Charts, c)
		}
	}
	dead := experiment.Chart{Title: "Pods that are not ready and that a proxy still knows", About: "First round, all settings.", X: "s", Y: "pods"}
	var after []experiment.Chart
	for _, s := range x.settings {
		if d := x.pictures[s.name]; d != nil {
			dead.Lines = append(dead.Lines, d.known.Lines...)
			after = append(after, d.depth, d.stages)
		}
	}
	if len(dead.Lines) > 0 {
		r.Charts = append(append(r.Charts, dead), slices.DeleteFunc(after, func(c experiment.Chart) bool { return len(c.Lines) == 0 })...)
	}
}

// byKind returns a chart with a group of bars for each setting whose queues are known, and a bar for each kind.
func (x *trial) byKind(r *experiment.Report, title, unit string, key func(string) string) experiment.Chart {
	c := experiment.Chart{Title: title, About: "Medians over the rounds.", Y: unit, Names: x.kinds}
	for _, v := range r.Variants {
		b := experiment.ChartBar{Label: v.Name}
		for _, k := range x.kinds {
			b.Values = append(b.Values, v.Summary[key(k)].Median)
		}
		if _, known := v.Summary[depthKey(x.kinds[0])]; known {
			c.Bars = append(c.Bars, b)
		}
	}
	return c
}

// stacked adds to each line the line before it. The highest line comes first, so that it is drawn below the others.
func stacked(c experiment.Chart) experiment.Chart {
	for i := 1; i < len(c.Lines); i++ {
		for j := range c.Lines[i].Points {
			c.Lines[i].Points[j][1] += c.Lines[i-1].Points[j][1]
		}
	}
	slices.Reverse(c.Lines)
	return c
}
