package chaos

import (
	"bytes"
	"cmp"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/plot"
)

// Report is the result of a run.
type Report struct {
	Schema     int                `json:"schema"`
	Experiment string             `json:"experiment"`
	Begun      string             `json:"begun"` // RFC 3339
	Took       float64            `json:"took_s"`
	Version    string             `json:"version"`
	Machine    experiment.Machine `json:"machine"`
	Seed       uint64             `json:"seed"`
	Time       float64            `json:"time_s"`  // of the plan
	Asked      int                `json:"proxies"` // that were asked for; the shape has about as many
	Shape      Shape              `json:"shape"`

	Plan    []Action           `json:"plan"`
	Events  []event            `json:"events"` // what was done, by its beginning
	Changes int                `json:"changes"`
	Faults  map[string]int     `json:"faults"`
	Skipped int                `json:"skipped"` // changes that were left out
	Refused int                `json:"refused"` // invalid objects that the API server did not take
	Traffic map[string]*counts `json:"traffic"`
	// Excused are requests that failed while a fault disturbed one of their proxies.
	Excused int `json:"excused"`
	// Drained are requests that failed when their connection was closed: its listener had changed, and was drained.
	Drained     int      `json:"drained"`
	ACKs        ackTimes `json:"acks"`
	QuietAfter  float64  `json:"quiet_after_s"` // from the end of the last fault and change to the last ACK
	Compared    int      `json:"compared"`      // resources of Envoys, with those of new ones
	UsageFirst  []Usage  `json:"usage_first"`   // of control planes before the plan
	UsageBefore []Usage  `json:"usage_before"`  // after it, before reconnections
	UsageAfter  []Usage  `json:"usage_after"`
	// ShrunkFrom is the number of actions of the plan that was shrunk to this one.
	ShrunkFrom int         `json:"shrunk_from,omitempty"`
	Violations []violation `json:"violations"`
	More       int         `json:"more_violations"` // that are not listed
}

// ackTimes are the times from a write to the last ACK, with faults among them.
type ackTimes struct {
	N       int     `json:"n"`
	P50     float64 `json:"p50_s"`
	P99     float64 `json:"p99_s"`
	Max     float64 `json:"max_s"`
	Checked int     `json:"checked"` // of N, looked up in config dumps
	// Replaced are changes that were written again before their ACK. They are not in N, and would be among the slow ones.
	Replaced int `json:"replaced"`
}

// event is an action that was done.
type event struct {
	Action

	Began   float64 `json:"began_s"` // since the plan's start
	Took    float64 `json:"took_s"`
	Skipped bool    `json:"skipped,omitempty"`
	Effect  string  `json:"effect,omitempty"` // of a fault, as it was measured
	Error   string  `json:"error,omitempty"`
}

// effect describes what a fault did.
func (e *event) effect(format string, args ...any) {
	if e.Effect != "" {
		e.Effect += "; "
	}
	e.Effect += fmt.Sprintf(format, args...)
}

// violation is something that must not happen.
type violation struct {
	At      time.Time     `json:"at"`
	Offset  float64       `json:"offset_s"` // since the plan's start
	Took    time.Duration `json:"took_ns,omitempty"`
	Kind    string        `json:"kind"` // request, ledger, stale, leak, crash or final state
	Subject string        `json:"subject"`
	Text    string        `json:"text"`
}

// Requests returns the number of all requests.
func (r *Report) Requests() (n int) {
	for _, c := range r.Traffic {
		n += c.Requests
	}
	return n
}

// FaultCount returns the number of all faults.
func (r *Report) FaultCount() (n int) {
	for _, c := range r.Faults {
		n += c
	}
	return n
}

// Found returns the number of all violations.
func (r *Report) Found() int { return len(r.Violations) + r.More }

// fill takes over what a run has recorded.
func (r *run) fill(out *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Plan, out.Events, out.Violations, out.More, out.Refused = r.options.Plan, r.events, r.violations, r.more, r.refused
	out.Faults, out.Traffic = map[string]int{}, map[string]*counts{}
	slices.SortFunc(out.Events, func(a, b event) int { return cmp.Compare(a.Began, b.Began) })
	for _, e := range out.Events {
		switch {
		case e.Skipped:
			out.Skipped++
		case e.What == burst:
			out.Changes += e.Count
		case e.What == write:
			out.Changes++
		default:
			out.Faults[e.What]++
		}
	}
	if r.traffic != nil {
		r.traffic.mu.Lock()
		defer r.traffic.mu.Unlock()
		out.Traffic, out.Excused, out.Drained = r.traffic.counts, r.traffic.excused, r.traffic.drained
	}
	if r.acks != nil {
		r.acks.mu.Lock()
		defer r.acks.mu.Unlock()
		out.ACKs = spread(r.acks.took)
		out.ACKs.Checked, out.ACKs.Replaced = r.acks.checked, r.acks.replaced
	}
}

func spread(list []time.Duration) (a ackTimes) {
	if a.N = len(list); a.N == 0 {
		return a
	}
	list = slices.Sorted(slices.Values(list))
	quantile := func(q float64) float64 { return list[int(q*float64(len(list)-1))].Seconds() }
	a.P50, a.P99, a.Max = quantile(.5), quantile(.99), quantile(1)
	return a
}

// ReadPlan sets the plan, and the size of the mesh, to those of a report.
func (o *Options) ReadPlan(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	if len(r.Plan) == 0 {
		return errors.New("it has no actions")
	}
	o.Plan, o.Seed, o.Proxies, o.Time = r.Plan, r.Seed, r.Asked, time.Duration(r.Time*float64(time.Second))
	return nil
}

//go:embed report.gohtml
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{"short": plot.Short}).Parse(pageText))

// Save writes report.json and report.html into a directory, which it creates.
func (r *Report) Save(dir string) error { return experiment.SaveReport(dir, r, r.WriteHTML, nil) }

// WriteHTML writes a page that needs no other file.
func (r *Report) WriteHTML(w io.Writer) error {
	return page.Execute(w, map[string]any{"Style": plot.Style, "Report": r, "Timeline": r.timeline()})
}

// Size of the timeline.
const (
	timelineWidth = 1000
	laneHeight    = 18
	laneLabel     = 190
)

// timeline draws a lane for each kind of fault, one for the changes, and one for violations.
func (r *Report) timeline() template.HTML {
	lanes := map[string][][2]float64{}
	var names []string
	add := func(lane string, from, took float64) {
		if lanes[lane] == nil {
			names = append(names, lane)
		}
		lanes[lane] = append(lanes[lane], [2]float64{from, took})
	}
	end := r.Time
	for _, e := range r.Events {
		if !e.Skipped {
			add(e.What, e.Began, e.Took)
			end = max(end, e.Began+e.Took)
		}
	}
	slices.Sort(names)
	for _, v := range r.Violations {
		add("violation", v.Offset, v.Took.Seconds())
		end = max(end, v.Offset+v.Took.Seconds())
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<figure style="max-width:none"><svg viewBox="0 0 %d %d" role="img" aria-label="timeline">`, timelineWidth, laneHeight*(len(names)+1))
	scale := (timelineWidth - laneLabel) / max(end, 1)
	for i, name := range names {
		y := laneHeight * i
		class := "s0"
		switch name {
		case write, burst:
			class = "s2"
		case "violation":
			class = "s3"
		}
		fmt.Fprintf(&b, `<text x="0" y="%d">%s</text>`, y+13, template.HTMLEscapeString(name))
		for _, x := range lanes[name] {
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, class, laneLabel+x[0]*scale, y+3, max(1.5, x[1]*scale), laneHeight-6)
		}
	}
	y := laneHeight*len(names) + 13
	for i := range 11 {
		s := end * float64(i) / 10
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s s</text>`, laneLabel+s*scale, y, plot.Short(s))
	}
	b.WriteString("</svg></figure>")
	return template.HTML(b.String()) //nolint:gosec // names are escaped
}

// FaultNames returns the kinds of faults that happened, in order.
func (r *Report) FaultNames() []string { return slices.Sorted(maps.Keys(r.Faults)) }
