package rollout

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// Timing and limits of reads from a control plane.
const (
	settleTick   = 100 * time.Millisecond
	lookTick     = 500 * time.Millisecond
	metricsEvery = 2    // ticks between reads of the metrics, which cost the control plane CPU time
	changesAtOne = 1024 // at most in one read: the size of the change log
	queueDepth   = "pilot_worker_queue_depth"
	queueWait    = "pilot_worker_queue_latency"
	queueWork    = "pilot_worker_queue_duration"
)

// counted are counters by kind of object whose increase is reported: sums in seconds, and numbers.
var counted = []string{queueWait + "_sum", queueWait + "_count", queueWork + "_sum", queueWork + "_count"}

// recorder reads a control plane's debug pages during a measurement. One goroutine uses it.
type recorder struct {
	address string // of the debug pages; empty: none are read
	client  http.Client
	begun   time.Time

	depth   map[string][][2]float64       // by kind: pairs of seconds and waiting objects
	first   map[string]map[string]float64 // counters by name and kind, at the first read
	last    map[string]map[string]float64 // and at the last read
	took    float64                       // seconds until the last read
	changes map[model.Revision]changelog.Change
	settled model.Revision // all changes up to here are distributed
}

func newRecorder(address string) *recorder {
	return &recorder{
		address: address, begun: time.Now(), depth: map[string][][2]float64{}, changes: map[model.Revision]changelog.Change{},
		client: http.Client{Timeout: session.ChangeTime, Transport: &http.Transport{DisableCompression: true}}, // compression would cost the control plane more CPU time than the page
	}
}

// run reads until ctx ends, and then once more.
func (r *recorder) run(ctx context.Context) error {
	defer r.client.CloseIdleConnections()
	tick := time.NewTicker(lookTick)
	defer tick.Stop()
	for n := 0; ; n++ {
		last := ctx.Err() != nil
		if err := r.look(last || n%metricsEvery == 0); err != nil || last {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (r *recorder) look(metrics bool) error {
	defer func() { r.took = time.Since(r.begun).Seconds() }()
	if r.address == "" {
		return nil
	}
	if metrics {
		text, err := session.GetPage(context.Background(), &r.client, "http://"+r.address+"/metrics") // the client has a limit
		if err != nil {
			return err
		}
		r.take(string(text), time.Since(r.begun).Seconds())
	}
	return r.lookAtChanges()
}

// take records the metrics at a time in seconds since the beginning.
func (r *recorder) take(text string, at float64) {
	for kind, n := range metric(text, queueDepth, byKind) {
		r.depth[kind] = append(r.depth[kind], [2]float64{at, n})
	}
	r.last = map[string]map[string]float64{}
	for _, name := range counted {
		r.last[name] = metric(text, name, byKind)
	}
	if r.first == nil {
		r.first = r.last
	}
}

// byKind is the label of a queue's metrics that names the kind of its objects.
const byKind = "queueID"

func (r *recorder) lookAtChanges() error {
	list, err := session.ChangesOf(context.Background(), &r.client, r.address, changesAtOne, r.settled) // the client has a limit
	if err != nil {
		return err
	}
	all := true
	for _, c := range slices.Backward(list) {
		if all = all && c.State == changelog.Distributed; all {
			r.settled = c.Revision
		}
		r.changes[c.Revision] = c
	}
	return nil
}

// metric sums the values of a metric by one label.
func metric(text, name, label string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"{")
		labels, value, ok2 := strings.Cut(rest, "} ")
		_, by, ok3 := strings.Cut(labels, label+`="`)
		if by, _, _ = strings.Cut(by, `"`); !ok || !ok2 || !ok3 {
			continue
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
			out[by] += n
		}
	}
	return out
}

// queue is how long events of a kind waited, and how long they were worked on, in milliseconds
// and on average between the first and the last look; ok: there were any.
func (r *recorder) queue(kind string) (wait, work float64, ok bool) {
	grown := func(name string) float64 { return r.last[name][kind] - r.first[name][kind] }
	n := grown(queueWait + "_count")
	return 1000 * results.Ratio(grown(queueWait+"_sum"), n), 1000 * results.Ratio(grown(queueWork+"_sum"), grown(queueWork+"_count")), n > 0
}

// deepest is the most that waited at any look.
func (r *recorder) deepest() (kind string, n float64) {
	for _, k := range slices.Sorted(maps.Keys(r.depth)) {
		for _, p := range r.depth[k] {
			if p[1] > n {
				kind, n = k, p[1]
			}
		}
	}
	return kind, n
}

// recent are the changes since the recorder began, in the order of revisions.
func (r *recorder) recent() (out []changelog.Change) {
	for _, rev := range slices.Sorted(maps.Keys(r.changes)) {
		if c := r.changes[rev]; !c.Observed.Before(r.begun) {
			out = append(out, c)
		}
	}
	return out
}

// depthChart has a line for each kind of which any object ever waited, the deepest first.
func (r *recorder) depthChart() experiment.Chart {
	c := experiment.Chart{X: "s", Title: "objects that wait in the intake, by kind (each second)", Y: "objects"}
	for _, k := range slices.Sorted(maps.Keys(r.depth)) {
		if highest(r.depth[k]) > 0 {
			c.Lines = append(c.Lines, experiment.ChartLine{Name: k, Points: thin(r.depth[k], r.took, true)})
		}
	}
	slices.SortStableFunc(c.Lines, func(a, b experiment.ChartLine) int { return cmp.Compare(highest(b.Points), highest(a.Points)) })
	return c
}

// stageChart is how long changes spent in each stage, by when their first event came.
func (r *recorder) stageChart() experiment.Chart {
	c := experiment.Chart{X: "s", Title: "delay of changes by stage (the longest of each moment)", Y: "ms"}
	for _, s := range changelog.Stages {
		l := experiment.ChartLine{Name: s.String()}
		for _, x := range r.recent() {
			stages, _ := x.Timeline.Split(time.Microsecond)
			l.Points = append(l.Points, [2]float64{x.Observed.Sub(r.begun).Seconds(), results.Millis(stages[s])})
		}
		slices.SortStableFunc(l.Points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		l.Points = thin(l.Points, r.took, false)
		c.Lines = append(c.Lines, l)
	}
	return c
}

// Moments of a chart.
const (
	chartPoints = 240 // at most
	chartMoment = 200 * time.Millisecond
)

// thin leaves the highest of each moment of a time of so many seconds. Points are in the
// order of x. A moment without any has 0; or where they are a level, what it was before.
func thin(points [][2]float64, seconds float64, level bool) (out [][2]float64) {
	n := int(math.Ceil(min(chartPoints, max(1, seconds/chartMoment.Seconds()))))
	next, last := 0, 0.0
	for i := range n {
		y, end := 0.0, seconds*float64(i+1)/float64(n)
		if level {
			y = last
		}
		for ; next < len(points) && (points[next][0] < end || i == n-1); next++ {
			last = points[next][1]
			y = max(y, last)
		}
		out = append(out, [2]float64{seconds * float64(i) / float64(n), y})
	}
	return out
}

func highest(points [][2]float64) (y float64) {
	for _, p := range points {
		y = max(y, p[1])
	}
	return y
}
