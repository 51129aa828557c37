package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// plane is a control plane under examination.
type plane struct {
	subject Subject
	now     Metrics // gauges
	counted Metrics // counters and histograms, over the time of watching or since the start
	over    time.Duration
	at      time.Time

	connected   *Connected
	noConnected string
}

type planeCheck struct {
	name, looksFor string
	look           func(*plane) verdict
}

// planeChecks are in the order of a change's way.
var planeChecks = []planeCheck{
	{"api-server-delay", "an API server that reports changes late", (*plane).apiServerDelay},
	{"intake-queue", "changes that wait in the intake queue", (*plane).intakeQueue},
	{"debounce", "changes that wait for a timer", (*plane).debounce},
	{"convergence", "proxies that get changes late", (*plane).convergence},
	{"push-queue", "proxies that wait for their turn", (*plane).pushQueue},
	{"push-context", "recomputation of the whole mesh for a change", (*plane).pushContext},
	{"push-size", "responses far larger than the change", (*plane).pushSize},
	{"cache", "configuration that is generated repeatedly", (*plane).cache},
	{"config-errors", "objects whose newest version has errors", (*plane).configErrors},
	{"translation", "resources that cannot be translated", (*plane).translation},
	{"rejects", "configuration that Envoy refuses", (*plane).rejects},
	{"behind", "proxies without the current configuration", (*plane).behind},
	{"disconnected", "sidecars that disconnected while their Pods exist", (*plane).disconnected},
	{"send-errors", "failed pushes", (*plane).sendErrors},
	{"failing-calls", "calls between services of which more than 5 % fail", (*plane).failingCalls},
	{"stale-endpoints", "proxies with endpoints that are gone", (*plane).staleEndpoints},
	{"conflicts", "objects in conflict", (*plane).conflicts},
	{"cpu", "a control plane without CPU to spare", (*plane).cpu},
	{"root-certificate", "a root certificate that expires soon", (*plane).rootCertificate},
}

func newPlane(e *PlaneEvidence, at time.Time) *plane {
	p := &plane{now: e.Now, counted: e.Now, over: e.Over, at: at, connected: e.Connected, noConnected: e.NoConnected}
	p.subject = Subject{Name: e.Address, Kind: Istiod, Seen: "since it started"}
	if e.Before != nil {
		p.counted = e.Now.Since(e.Before)
		p.subject.Seen = fmt.Sprintf("for %s", e.Over)
	}
	build := e.Now["pilot_info"]
	if b := e.Now["moonsail_build_info"]; len(b) > 0 {
		p.subject.Kind, build = Moonsail, b
	}
	if len(build) > 0 {
		p.subject.Version = build[0].Labels["version"]
	}
	return p
}

func (p *plane) istiod() bool { return p.subject.Kind == Istiod }

// IsControlPlane reports whether metrics are of a known control plane.
func IsControlPlane(m Metrics) bool { return m.Has("pilot_info") || IsMoonsail(m) }

// IsMoonsail reports whether metrics are of a control plane of Moonsail.
func IsMoonsail(m Metrics) bool { return m.Has("moonsail_build_info") }

// histogram returns the observations while the control plane was watched. If there are none, it returns
// those since its start.
func (p *plane) histogram(name string) (h *Histogram, when string) {
	if h = p.counted.Histogram(name); h != nil && h.Count > 0 {
		return h, p.subject.Seen
	}
	return p.now.Histogram(name), "since it started"
}

// worst is the quantile by which delays are judged.
const worst = 0.99

// late describes a histogram whose p99 is more than beyond seconds. Empty: it is not.
func late(name string, h *Histogram, when string, beyond float64) string {
	if h == nil || h.Count == 0 {
		return ""
	}
	v, more := h.Quantile(worst)
	if v <= beyond && !(more && v >= beyond) {
		return ""
	}
	return fmt.Sprintf("%s: p99 %s%s, mean %s, of %.0f, %s", name, beyondBound(more), seconds(v), seconds(h.Mean()), h.Count, when)
}

func beyondBound(more bool) string {
	if more {
		return "> "
	}
	return ""
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

func size(bytes float64) string {
	for _, unit := range []string{"B", "KB", "MB"} {
		if bytes < 1000 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g GB", bytes)
}

// listed returns the values of a label that have more than a bound, the largest first: "name=value".
func listed(metric, label string, values map[string]float64, beyond float64) []string {
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		if values[a] != values[b] {
			if values[a] > values[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var out []string
	for _, n := range names {
		if values[n] > beyond {
			out = append(out, fmt.Sprintf("%s{%s=%q} %.0f", metric, label, n, values[n]))
		}
	}
	return out
}

// found returns the texts that are not empty.
func found(texts ...string) []string {
	return slices.DeleteFunc(texts, func(t string) bool { return t == "" })
}
