package propagation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/telemetry"
)

// Looks at a control plane.
const (
	depthTick    = 100 * time.Millisecond
	changesEvery = 5    // ticks; the change log remembers 1024
	changesAtOne = 1024 // time
	metricDepth  = "pilot_worker_queue_depth"
	metricEvents = "pilot_k8s_reg_events"
)

// recorder looks at a control plane's pages while something happens. It belongs to one
// goroutine.
type recorder struct {
	address string // of the pages
	client  http.Client
	begun   time.Time

	depth   map[string][][2]float64 // by kind: seconds, objects that wait
	first   map[string]float64      // events by kind, at the first look
	last    map[string]float64      // and at the last one
	took    float64                 // seconds until the last look
	changes map[model.Revision]telemetry.Change
	settled model.Revision // up to here they are distributed
}

func newRecorder(address string) *recorder {
	return &recorder{
		address: address, begun: time.Now(), depth: map[string][][2]float64{}, changes: map[model.Revision]telemetry.Change{},
		client: http.Client{Timeout: changeTime, Transport: &http.Transport{}},
	}
}

// run looks until ctx ends, and once more.
func (r *recorder) run(ctx context.Context) error {
	defer r.client.CloseIdleConnections()
	tick := time.NewTicker(depthTick)
	defer tick.Stop()
	for n := 0; ; n++ {
		last := ctx.Err() != nil
		if err := r.look(last || n%changesEvery == 0); err != nil || last {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (r *recorder) look(changes bool) error {
	text, err := r.get("/metrics")
	if err != nil {
		return err
	}
	at := time.Since(r.begun).Seconds()
	r.took = at
	for kind, n := range metric(string(text), metricDepth, "queueID") {
		r.depth[kind] = append(r.depth[kind], [2]float64{at, n})
	}
	r.last = metric(string(text), metricEvents, "type")
	if r.first == nil {
		r.first = r.last
	}
	if changes {
		return r.lookAtChanges()
	}
	return nil
}

func (r *recorder) lookAtChanges() error {
	body, err := r.get(fmt.Sprintf("/debug/changes?n=%d&after=%d", changesAtOne, r.settled))
	if err != nil {
		return err
	}
	var list debug.ChangeList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	all := true
	for _, c := range slices.Backward(list.Changes) {
		if all = all && c.State == telemetry.Distributed; all {
			r.settled = c.Revision
		}
		r.changes[c.Revision] = c
	}
	return nil
}

func (r *recorder) get(page string) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+r.address+page, http.NoBody) // the client has a limit
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", page, resp.Status)
	}
	return b, err
}

// metric sums the values of a metric up, by one of its labels.
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

// events is how many came from the API server between the first and the last look.
func (r *recorder) events() (n float64) {
	for kind := range r.last {
		n += r.last[kind] - r.first[kind]
	}
	return n
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
func (r *recorder) recent() (out []telemetry.Change) {
	for _, rev := range slices.Sorted(maps.Keys(r.changes)) {
		if c := r.changes[rev]; !c.Observed.Before(r.begun) {
			out = append(out, c)
		}
	}
	return out
}

// depthChart has a line for each kind of which any object ever waited, the deepest first.
func (r *recorder) depthChart() Chart {
	c := Chart{Title: "objects that wait in the intake, by kind (each 100 ms)", Y: "objects"}
	for _, k := range slices.Sorted(maps.Keys(r.depth)) {
		if highest(r.depth[k]) > 0 {
			c.Lines = append(c.Lines, ChartLine{k, thin(r.depth[k], r.took, false)})
		}
	}
	slices.SortStableFunc(c.Lines, func(a, b ChartLine) int { return cmp.Compare(highest(b.Points), highest(a.Points)) })
	return c
}

// stageChart is how long changes spent in each stage, by when their first event came.
func (r *recorder) stageChart() Chart {
	c := Chart{Title: "delay of changes by stage (the longest of each moment)", Y: "ms"}
	for _, s := range telemetry.Stages {
		l := ChartLine{Name: s.String()}
		for _, x := range r.recent() {
			stages, _ := x.Timeline.Split(time.Microsecond)
			l.Points = append(l.Points, [2]float64{x.Observed.Sub(r.begun).Seconds(), millis(stages[s])})
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
