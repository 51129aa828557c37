package istioapi

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Severity tells what a problem means for the object that has it.
type Severity string

// The severities. An object with an error is not used: what was in force before
// stays in force; of an object of security that never was good see Partial. Warnings and
// infos change nothing.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityInfo    Severity = "info"
)

// rank orders severities, the gravest first.
func (s Severity) rank() int {
	switch s {
	case SeverityError:
		return 0
	case SeverityWarning:
		return 1
	}
	return 2
}

// LogLevel is the level that a problem of the severity is logged at.
func (s Severity) LogLevel() slog.Level {
	switch s {
	case SeverityError:
		return slog.LevelError
	case SeverityWarning:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Problem is one thing that is wrong, and what to do about it.
type Problem struct {
	Severity Severity  `json:"severity"`
	File     string    `json:"file,omitempty"`  // empty: not from a file
	Line     int       `json:"line,omitempty"`  // 0: not known
	Object   model.Key `json:"object,omitzero"` // zero where it is not known
	Field    string    `json:"field,omitempty"` // "spec.http[0].route[1].weight"; empty: the object as a whole
	Message  string    `json:"message"`
}

// Where is "file:line", or less where less is known.
func (p Problem) Where() string {
	if p.File == "" || p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// String is one line: where, how grave, which object, which field, what.
func (p Problem) String() string {
	var parts []string
	if w := p.Where(); w != "" {
		parts = append(parts, w)
	}
	parts = append(parts, string(p.Severity))
	if p.Object != (model.Key{}) {
		parts = append(parts, p.Object.String())
	}
	if p.Field != "" {
		parts = append(parts, p.Field)
	}
	return strings.Join(append(parts, p.Message), ": ")
}

// Problems is a list of them.
type Problems []Problem

// HasErrors tells whether the object must not be used.
func (ps Problems) HasErrors() bool { return ps.Count(SeverityError) > 0 }

// Count tells how many problems have the severity.
func (ps Problems) Count(s Severity) int {
	n := 0
	for _, p := range ps {
		if p.Severity == s {
			n++
		}
	}
	return n
}

// Sort orders problems by file, line, object, severity, field and message.
func (ps Problems) Sort() {
	slices.SortFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			a.Object.Compare(b.Object),
			cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			strings.Compare(a.Field, b.Field),
			strings.Compare(a.Message, b.Message),
		)
	})
}

// report collects the problems of one object.
type report struct {
	object model.Key
	list   Problems
}

// maxProblems is how many problems of one object are kept; nobody reads more.
const maxProblems = 100

func (r *report) full() bool { return len(r.list) >= maxProblems }

func (r *report) add(s Severity, at path, format string, args ...any) {
	if r.full() && (s != SeverityError || r.list.HasErrors()) { // no error is lost behind warnings
		return
	}
	r.list = append(r.list, Problem{
		Severity: s, Object: r.object, Field: string(at), Message: fmt.Sprintf(format, args...),
	})
}

func (r *report) errorf(at path, format string, args ...any) {
	r.add(SeverityError, at, format, args...)
}

func (r *report) warnf(at path, format string, args ...any) {
	r.add(SeverityWarning, at, format, args...)
}
