// Package doctor tells which of the illnesses that meshes have a running one has: changes that take long to arrive,
// dead endpoints, queues that nobody sees, configuration that is far too much, sidecars that use one of their CPUs.
// It reads what a control plane, Istio's or Moonsail's, and Envoys tell everybody who may scrape them, and changes
// nothing.
//
// Evidence is collected by Collect; what follows from it is pure. Each check says what it looked at, so that an
// illness that cannot be seen is not taken for one that is not there.
package doctor

import (
	"cmp"
	"slices"
	"time"
)

// Severity of a finding.
type Severity string

// Severities, the gravest first.
const (
	Ill   Severity = "ill"   // users feel it
	Risk  Severity = "risk"  // it costs, or will be felt under load
	Blind Severity = "blind" // it cannot be seen whether there is an illness
)

// Finding is an illness, with what shows it and what cures it.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // whose
	What     string   `json:"what"`
	Evidence []string `json:"evidence"`
	Cure     []string `json:"cure"`
}

// Subject is a process that was examined.
type Subject struct {
	Name    string `json:"name"`
	Kind    Kind   `json:"kind"`
	Version string `json:"version,omitempty"`
	Seen    string `json:"seen"` // of its counters: since it started, or for how long they were watched
}

// Kind of a subject.
type Kind string

// Kinds.
const (
	Istiod   Kind = "istiod"
	Moonsail Kind = "Moonsail"
	Sidecar  Kind = "Envoy"
)

// Report is what came of an examination.
type Report struct {
	At       time.Time `json:"at"`
	Subjects []Subject `json:"subjects"`
	Findings []Finding `json:"findings"` // the gravest first
	Well     []Healthy `json:"well"`
}

// Healthy is a check that found nothing.
type Healthy struct {
	Check   string `json:"check"`
	Subject string `json:"subject"`
	What    string `json:"what"` // that it looked for
}

// Examine looks for every illness that evidence may show.
func Examine(e *Evidence) *Report {
	r := &Report{At: e.At, Subjects: []Subject{}, Findings: []Finding{}, Well: []Healthy{}}
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
	order := []Severity{Ill, Risk, Blind}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	return r
}

// IsIll tells whether users feel anything that was found.
func (r *Report) IsIll() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Ill })
}

// verdict is what a check came to: findings, or nothing found; or that there was nothing to look at.
type verdict struct {
	findings []Finding
	looked   bool
}

// well is the verdict of a check that had something to look at.
func well(findings ...Finding) verdict { return verdict{findings, true} }

// nothing is the verdict where there is nothing to look at, and nobody misses it.
var nothing = verdict{}

func (r *Report) add(s *Subject, name, looksFor string, v verdict) {
	for _, f := range v.findings {
		f.Check, f.Subject = name, s.Name
		r.Findings = append(r.Findings, f)
	}
	if v.looked && len(v.findings) == 0 {
		r.Well = append(r.Well, Healthy{name, s.Name, looksFor})
	}
}
