package propagation

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Report is what a run has found: the content of report.json. Times are in
// milliseconds, sizes in bytes.
type Report struct {
	Schema  int                `json:"schema"` // 2; grows with what readers must know of
	Begun   string             `json:"begun"`  // RFC 3339
	Budget  float64            `json:"budget_s"`
	Took    float64            `json:"took_s"`
	Version string             `json:"version"` // of Moonsail
	Target  string             `json:"target"`  // what was measured: "moonsail serve", or an address
	CPUs    int                `json:"cpus"`
	Machine experiment.Machine `json:"machine"`
	Notes   []string           `json:"notes,omitempty"`
	Quick   bool               `json:"quick"`
	Rounds  int                `json:"rounds"`
	Results []Result           `json:"results"`
	Stopped string             `json:"stopped,omitempty"` // why there is no more, where it ended early
	// Peer is the control plane that was measured beside, if any.
	Peer *PeerReport `json:"peer,omitempty"`
}

// Result is one scenario on one mesh.
type Result struct {
	Scenario string          `json:"scenario"`
	Mesh     meshfiles.Shape `json:"mesh"`
	Note     string          `json:"note,omitempty"`
	// Subject is the control plane under test; Floor and Bare are beside it, where they
	// make sense.
	Subject Side         `json:"subject"`
	Floor   *Side        `json:"floor,omitempty"`
	Bare    *Side        `json:"bare_tcp,omitempty"`
	Bars    []Bar        `json:"bars,omitempty"`
	State   *FinalState  `json:"final_state,omitempty"`
	Series  []Point      `json:"series,omitempty"` // growth: by size of the mesh
	Kinds   []KindSpread `json:"kinds,omitempty"`  // churn: by kind of change
	Waits   []Wait       `json:"waits,omitempty"`  // locks: the longest, for locks and then for anything
	// Profiles are those that Waits are made of, for 'go tool pprof', by file name.
	Profiles map[string][]byte `json:"-"`
	// Report is all of expedia and airbnb, which are experiments like the lab's others; such
	// results have no Subject.
	Report *experiment.Report `json:"report,omitempty"`
}

// Side is what one server was measured to take. Last and CPU are spread over changes,
// Proxies over all proxies of all changes.
type Side struct {
	Changes     int          `json:"changes"`
	Last        Spread       `json:"last_ms"`           // until the last proxy's ACK
	Heard       Spread       `json:"heard_ms,omitzero"` // until the server has read it; none: it does not tell
	Proxies     Spread       `json:"proxy_ms"`
	CPU         Spread       `json:"cpu_ms"` // of the server
	Concerned   PerProxy     `json:"concerned"`
	Unconcerned PerProxy     `json:"unconcerned"`
	IdleRSS     int64        `json:"idle_rss,omitempty"`
	PeakRSS     int64        `json:"peak_rss,omitempty"`
	ProxyMemory float64      `json:"proxy_memory,omitempty"` // live heap and stacks of a connected proxy
	Curve       [][2]float64 `json:"curve,omitempty"`        // share of proxies, milliseconds
	// Samples are the changes that all but Proxies and Curve are made from, in their order.
	Samples []Sample `json:"samples,omitempty"`
}

// Bar is a limit of the plan, and whether it holds.
type Bar struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Unit  string  `json:"unit"` // "x" of a ratio, "%", "ms", "B", "KiB", "s"
	Holds bool    `json:"holds"`
	// Of ratios to what was measured in turn: an interval that holds the true median, and the
	// verdict of package experiment. Else there is none.
	Low     float64 `json:"low,omitempty"`
	High    float64 `json:"high,omitempty"`
	Verdict string  `json:"verdict,omitempty"`
}

// FinalState says whether what proxies hold in the end is what they should.
type FinalState struct {
	Proxies int      `json:"proxies"` // compared with fresh ones
	Fresh   int      `json:"fresh"`   // that connected for it
	Decoded int      `json:"decoded"` // resources that were decoded and compared with the source
	Wrong   int      `json:"wrong"`   // proxies or resources
	First   []string `json:"first,omitempty"`
}

// Point is one size of a growing mesh.
type Point struct {
	Services int  `json:"services"`
	Side     Side `json:"side"`
}

// KindSpread is the churn's distribution for one kind of change.
type KindSpread struct {
	Kind    string `json:"kind"`
	Changes int    `json:"changes"`
	Proxies Spread `json:"proxy_ms"`
}

// Wait is what goroutines waited for at one place of the code, all together.
type Wait struct {
	Lock  bool    `json:"lock"`  // for a lock, by the place that held it; else for anything, by the place that waited
	Where string  `json:"where"` // function and line
	Count int64   `json:"count"`
	Time  float64 `json:"time_ms"`
	Share float64 `json:"share_percent"` // of the wall time
}

// bar adds a limit to a result.
func (r *Result) bar(what string, value, limit float64, unit string) {
	r.Bars = append(r.Bars, Bar{What: what, Value: value, Limit: limit, Unit: unit, Holds: value <= limit})
}

// barOver adds a limit to the median of the ratios to a base, change by change.
func (r *Result) barOver(what string, of func(*Sample) float64, base []Sample, limit float64) {
	var list []float64
	for i := range min(len(r.Subject.Samples), len(base)) {
		if b := of(&base[i]); b > 0 {
			list = append(list, of(&r.Subject.Samples[i])/b)
		}
	}
	b := Bar{What: what, Value: Median(list), Limit: limit, Unit: "x"}
	low, high, confidence := experiment.Interval(list)
	b.Low, b.High, b.Holds = low, high, len(list) > 0 && b.Value <= limit
	switch b.Verdict = experiment.Verdict(len(list), low, high, confidence, limit); b.Verdict {
	case experiment.IsLower:
		b.Verdict = experiment.Holds
	case experiment.IsHigher:
		b.Verdict = experiment.Missed
	}
	r.Bars = append(r.Bars, b)
}

func last(s *Sample) float64  { return s.Last }
func heard(s *Sample) float64 { return s.Heard }
func cpu(s *Sample) float64   { return s.CPU }

const curvePoints = 100

// sideOf sums samples up.
func sideOf(samples []Sample) Side {
	var last, heard, cpu, proxies []float64
	var concerned, unconcerned [2][]float64
	for _, s := range samples {
		last, cpu, proxies = append(last, s.Last), append(cpu, s.CPU), append(proxies, s.proxies...)
		if s.Heard > 0 {
			heard = append(heard, s.Heard)
		}
		concerned[0], concerned[1] = append(concerned[0], s.Concerned.Messages), append(concerned[1], s.Concerned.Bytes)
		unconcerned[0], unconcerned[1] = append(unconcerned[0], s.Unconcerned.Messages), append(unconcerned[1], s.Unconcerned.Bytes)
	}
	return Side{
		Changes: len(samples), Last: SpreadOf(last), Heard: SpreadOf(heard), CPU: SpreadOf(cpu), Proxies: SpreadOf(proxies),
		Concerned:   PerProxy{Median(concerned[0]), Median(concerned[1])},
		Unconcerned: PerProxy{Median(unconcerned[0]), Median(unconcerned[1])},
		Curve:       curve(proxies), Samples: samples,
	}
}

// MeshName is "500x1000": services and proxies.
func (r *Result) MeshName() string { return meshName(r.Mesh) }

// Text is a value of the bar with its unit.
func (b *Bar) Text(v float64) string {
	switch b.Unit {
	case "x":
		return fmt.Sprintf("%.2fx", v)
	case "%":
		return fmt.Sprintf("%.2f %%", v)
	case "B":
		return fmt.Sprintf("%.0f B", v)
	}
	return fmt.Sprintf("%.1f %s", v, b.Unit)
}

// Range is a bar's interval, if it has one.
func (b *Bar) Range() string {
	if b.Verdict == "" {
		return ""
	}
	return b.Text(b.Low) + " to " + b.Text(b.High)
}

// Doubt says why it is not sure whether a bar holds; "" where it is, or cannot be told.
func (b *Bar) Doubt() string {
	if b.Verdict == experiment.WithinNoise || b.Verdict == experiment.TooFew {
		return b.Verdict
	}
	return ""
}

// Singles are the results that are not experiments of their own; all of a run that has none.
func (r *Report) Singles() (out []*Result) {
	for i := range r.Results {
		if r.Results[i].Report == nil {
			out = append(out, &r.Results[i])
		}
	}
	return out
}

// Wrong is the number of proxies and resources that were not as they should be.
func (r *Report) Wrong() (n int) {
	for _, x := range r.Results {
		if x.State != nil {
			n += x.State.Wrong
		}
	}
	return n
}
