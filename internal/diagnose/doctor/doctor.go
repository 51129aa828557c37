// Package doctor finds known problems of a running mesh: changes that arrive late, dead endpoints, hidden
// queues, configuration that is far too large, and sidecars that use one of their CPUs.
//
// It reads what a control plane, Istio's or Moonsail's, and Envoys show to scrapers, and changes nothing.
// Collect collects evidence; everything after it is pure. Each check reports what it looked at, so that a
// problem that cannot be seen is not reported as absent.
//
// Start reading at Examine.
package doctor

import (
	"cmp"
	"slices"
	"time"
)

// Severity of a finding.
type Severity string

// Severities, the worst first.
const (
	Critical Severity = "ill"   // users notice it
	Warning  Severity = "risk"  // it costs resources, or becomes a problem under load
	Unknown  Severity = "blind" // the evidence for the check is missing
	Past     Severity = "past"  // it was a problem, and is none now
)

// Finding is a problem, with its evidence and advice.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // the subject's name
	What     string   `json:"what"`
	Evidence []string `json:"evidence"`
	Advice   []string `json:"cure"`
}

// Subject is a process that was examined.
type Subject struct {
	Name    string `json:"name"`
	Kind    Kind   `json:"kind"`
	Version string `json:"version,omitempty"`
	Seen    string `json:"seen"` // period of its counters: since its start, or the time of watching
}

// Kind is the kind of a subject.
type Kind string

// Kinds.
const (
	Istiod   Kind = "istiod"
	Moonsail Kind = "Moonsail"
	Sidecar  Kind = "Envoy"
)

// Report is the result of an examination.
type Report struct {
	At       time.Time `json:"at"`
	Subjects []Subject `json:"subjects"`
	Findings []Finding `json:"findings"` // the worst first
	Healthy  []Healthy `json:"well"`
}

// Healthy is a check without findings.
type Healthy struct {
	Check   string `json:"check"`
	Subject string `json:"subject"`
	What    string `json:"what"` // what the check looks for
}

// Examine runs all checks on the evidence.
func Examine(e *Evidence) *Report {
	r := &Report{At: e.At, Subjects: []Subject{}, Findings: []Finding{}, Healthy: []Healthy{}}
	if e.ControlPlane != nil {
		p := newPlane(e.ControlPlane, e.At)
		r.Subjects = append(r.Subjects, p.subject)
		for _, c := range planeChecks {
			r.add(&p.subject, c.name, c.looksFor, c.look(p))
		}
	}
	for i := range e.Sidecars {
		s := newProxy(&e.Sidecars[i])
		r.Subjects = append(r.Subjects, s.subject)
		for _, c := range proxyChecks {
			r.add(&s.subject, c.name, c.looksFor, c.look(s))
		}
	}
	r.sort()
	return r
}

// Join returns one report with the contents of several, at least one.
func Join(reports []*Report) *Report {
	r := *reports[0]
	for _, other := range reports[1:] {
		r.Subjects = append(r.Subjects, other.Subjects...)
		r.Findings = append(r.Findings, other.Findings...)
		r.Healthy = append(r.Healthy, other.Healthy...)
	}
	r.sort()
	return &r
}

// sort puts the worst findings first.
func (r *Report) sort() {
	order := []Severity{Critical, Warning, Unknown, Past}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
}

// HasCritical reports whether there is a finding that users notice.
func (r *Report) HasCritical() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Critical })
}

// verdict is the result of a check: its findings, if it had something to look at.
type verdict struct {
	findings []Finding
	looked   bool
}

// well is the verdict of a check that had something to look at.
func checked(findings ...Finding) verdict { return verdict{findings, true} }

// nothing is the verdict of a check that does not apply.
var nothing = verdict{}

func (r *Report) add(s *Subject, name, looksFor string, v verdict) {
	for _, f := range v.findings {
		f.Check, f.Subject = name, s.Name
		r.Findings = append(r.Findings, f)
	}
	if v.looked && len(v.findings) == 0 {
		r.Healthy = append(r.Healthy, Healthy{name, s.Name, looksFor})
	}
}
