// Package results has the report of experiment propagation: its content (report.json), its page (report.html), and
// targets. It measures nothing.
package results

import (
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Report is the result of a run and the content of report.json. Times are in milliseconds, sizes in bytes.
type Report struct {
	Schema  int                `json:"schema"` // of this structure; increases with incompatible changes
	Begun   string             `json:"begun"`  // RFC 3339
	Budget  float64            `json:"budget_s"`
	Took    float64            `json:"took_s"`
	Version string             `json:"version"` // of Moonsail
	Subject string             `json:"subject"` // the measured control plane: "moonsail serve" or an address
	CPUs    int                `json:"cpus"`
	Machine experiment.Machine `json:"machine"`
	Notes   []string           `json:"notes,omitempty"`
	Quick   bool               `json:"quick"`
	Rounds  int                `json:"rounds"`
	Results []Result           `json:"results"`
	Stopped string             `json:"stopped,omitempty"` // why the run ended early; empty: it did not
	// Peer has the results of the other control plane, if there was one.
	Peer *PeerReport `json:"peer,omitempty"`
}

// Drawing has the texts of the plots of a scenario's results.
type Drawing struct {
	Reached string    // what proxies do over time; "": "have the change"
	Lines   [2]string // names of the lines of Subject and Baseline, if Baseline is not the baseline server
	Bars    string    // title of a plot of the targets in KiB; "": no such plot
}

// Result is one scenario on one mesh.
type Result struct {
	Scenario string          `json:"scenario"`
	Drawing  Drawing         `json:"-"`
	Mesh     meshfiles.Shape `json:"mesh"`
	Note     string          `json:"note,omitempty"`
	// Subject is the control plane under test. Baseline and Bare are set if the scenario has them.
	Subject  Side         `json:"subject"`
	Baseline *Side        `json:"baseline,omitempty"`
	Bare     *Side        `json:"bare_tcp,omitempty"`
	Targets  []Target     `json:"targets,omitempty"`
	State    *FinalState  `json:"final_state,omitempty"`
	Series   []Point      `json:"series,omitempty"` // of growth: by size of the mesh
	Kinds    []KindSpread `json:"kinds,omitempty"`  // of churn: by kind of change
	Waits    []Wait       `json:"waits,omitempty"`  // of locks: the longest waits for locks, then other waits
	// Profiles are the sources of Waits, for 'go tool pprof', by file name.
	Profiles map[string][]byte `json:"-"`
	// Report is the result of expedia and airbnb, which package experiment runs. Such a Result has no Subject.
	Report *experiment.Report `json:"report,omitempty"`
}

// Side is the measurement of one server. Last and CPU are distributions over changes, Proxies over all proxies
// of all changes.
type Side struct {
	Changes     int          `json:"changes"`
	Last        Spread       `json:"last_ms"`           // until the last proxy's ACK
	Heard       Spread       `json:"heard_ms,omitzero"` // until the server has read it; zero: unknown
	Proxies     Spread       `json:"proxy_ms"`
	CPU         Spread       `json:"cpu_ms"` // of the server
	Concerned   PerProxy     `json:"concerned"`
	Unconcerned PerProxy     `json:"unconcerned"`
	IdleRSS     int64        `json:"idle_rss,omitempty"`
	PeakRSS     int64        `json:"peak_rss,omitempty"`
	ProxyMemory float64      `json:"proxy_memory,omitempty"` // live heap and stacks for each connected proxy
	Curve       [][2]float64 `json:"curve,omitempty"`        // pairs of share of proxies and milliseconds
	// Samples are the changes in order. All fields but Proxies and Curve are computed from them.
	Samples []Sample `json:"samples,omitempty"`
}

// Target is a target, the measured value, and whether the target is met.
type Target struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Unit  string  `json:"unit"` // "x" of a ratio, "%", "ms", "B", "KiB", "s"
	Met   bool    `json:"met"`
	// Low, High and Verdict are set for ratios to a server measured in turn: an interval that contains the true
	// median, and the verdict of package experiment.
	Low     float64 `json:"low,omitempty"`
	High    float64 `json:"high,omitempty"`
	Verdict string  `json:"verdict,omitempty"`
}

// FinalState compares what proxies have at the end with what they should have.
type FinalState struct {
	Proxies int      `json:"proxies"` // compared with new ones
	Fresh   int      `json:"fresh"`   // new proxies that connected for the comparison
	Decoded int      `json:"decoded"` // resources decoded and compared with the source
	Wrong   int      `json:"wrong"`   // proxies or resources that differ
	First   []string `json:"first,omitempty"`
}

// Point is one size of the mesh in growth.
type Point struct {
	Services int  `json:"services"`
	Side     Side `json:"side"`
}

// KindSpread is the distribution for one kind of change in churn.
type KindSpread struct {
	Kind    string `json:"kind"`
	Changes int    `json:"changes"`
	Proxies Spread `json:"proxy_ms"`
}

// Wait is the sum of waits of all goroutines at one place of the code.
type Wait struct {
	Lock  bool    `json:"lock"`  // for a lock, by the place that held it; false: other waits, by the place that waited
	Where string  `json:"where"` // function and line
	Count int64   `json:"count"`
	Time  float64 `json:"time_ms"`
	Share float64 `json:"share_percent"` // of elapsed time
}

// AddTarget adds a target to a result.
func (r *Result) AddTarget(what string, value, limit float64, unit string) {
	r.Targets = append(r.Targets, Target{What: what, Value: value, Limit: limit, Unit: unit, Met: value <= limit})
}

// AddRatioTarget adds a target for the median of the ratios to a base, change by change.
func (r *Result) AddRatioTarget(what string, of func(*Sample) float64, base []Sample, limit float64) {
	var list []float64
	for i := range min(len(r.Subject.Samples), len(base)) {
		if b := of(&base[i]); b > 0 {
			list = append(list, of(&r.Subject.Samples[i])/b)
		}
	}
	b := Target{What: what, Value: Median(list), Limit: limit, Unit: "x"}
	low, high, confidence := experiment.Interval(list)
	b.Low, b.High, b.Met = low, high, len(list) > 0 && b.Value <= limit
	switch b.Verdict = experiment.Verdict(len(list), low, high, confidence, limit); b.Verdict {
	case experiment.IsLower:
		b.Verdict = experiment.Met
	case experiment.IsHigher:
		b.Verdict = experiment.Missed
	}
	r.Targets = append(r.Targets, b)
}

// LastOf returns when the last proxy ACKed the change, in milliseconds.
func LastOf(s *Sample) float64 { return s.Last }

// HeardOf returns when the server had read the last ACK, in milliseconds; zero: unknown.
func HeardOf(s *Sample) float64 { return s.Heard }

// CPUOf returns the server's CPU time for the change, in milliseconds.
func CPUOf(s *Sample) float64 { return s.CPU }

const (
	curvePoints = 100
	firstWrongs = 10 // reported in FinalState.First
)

// SideOf summarizes samples.
func SideOf(samples []Sample) Side {
	var last, heard, cpu, proxies []float64
	var concerned, unconcerned [2][]float64
	for _, s := range samples {
		last, cpu, proxies = append(last, s.Last), append(cpu, s.CPU), append(proxies, s.ProxyTimes...)
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

// MeshName returns services and proxies, for example "500x1000".
func (r *Result) MeshName() string { return MeshName(r.Mesh) }

// Text formats a value with the unit of the target.
func (b *Target) Text(v float64) string {
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

// Range formats the interval, if there is one.
func (b *Target) Range() string {
	if b.Verdict == "" {
		return ""
	}
	return b.Text(b.Low) + " to " + b.Text(b.High)
}

// Doubt returns why it is uncertain whether the target is met, or "".
func (b *Target) Doubt() string {
	if b.Verdict == experiment.WithinNoise || b.Verdict == experiment.TooFew {
		return b.Verdict
	}
	return ""
}

// Singles returns the results without a Report of package experiment.
func (r *Report) Singles() (out []*Result) {
	for i := range r.Results {
		if r.Results[i].Report == nil {
			out = append(out, &r.Results[i])
		}
	}
	return out
}

// Wrong returns the number of proxies and resources with a wrong final state.
func (r *Report) Wrong() (n int) {
	for _, x := range r.Results {
		if x.State != nil {
			n += x.State.Wrong
		}
	}
	return n
}

// Sample is the measurement of one change.
type Sample struct {
	Last        float64   `json:"last_ms"`            // until the last proxy wrote its ACK
	Heard       float64   `json:"heard_ms,omitempty"` // until the server read the last ACK; 0: unknown
	CPU         float64   `json:"cpu_ms"`             // of the server, until it is idle again
	Concerned   PerProxy  `json:"concerned"`
	Unconcerned PerProxy  `json:"unconcerned"`
	Began       time.Time `json:"-"`
	ProxyTimes  []float64 `json:"-"` // milliseconds of each concerned proxy
}

// PerProxy is the average traffic to a proxy.
type PerProxy struct {
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`
}

// Over divides the sums by n, the number of proxies.
func (p *PerProxy) Over(n float64) { p.Messages, p.Bytes = Ratio(p.Messages, n), Ratio(p.Bytes, n) }

// AddWrong counts a wrong resource, and keeps the descriptions of the first ones.
func (f *FinalState) AddWrong(format string, args ...any) {
	if f.Wrong++; len(f.First) < firstWrongs {
		f.First = append(f.First, fmt.Sprintf(format, args...))
	}
}

// Merge adds the counts of other.
func (f *FinalState) Merge(other *FinalState) {
	f.Proxies += other.Proxies
	f.Fresh += other.Fresh
	f.Decoded += other.Decoded
	f.Wrong += other.Wrong
	f.First = append(f.First, other.First...)
}

// Latest describes the last result.
func (r *Report) Latest() string {
	x := &r.Results[len(r.Results)-1]
	return x.Scenario + " on mesh " + x.MeshName()
}

// MeshName writes the size of a mesh as SERVICESxPROXIES.
func MeshName(m meshfiles.Shape) string { return fmt.Sprintf("%dx%d", m.Services, m.Proxies) }
