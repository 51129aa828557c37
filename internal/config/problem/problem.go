package problem

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// Severity is what a problem means for its object.
type Severity string

// The severities. An object with an error is not used: what was in force before
// stays in force; of an object of security or a route that never was good see Salvaged. Warnings and
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
	Code     code.Code `json:"code,omitempty"`
	File     string    `json:"file,omitempty"`  // empty: not from a file
	Line     int       `json:"line,omitempty"`  // 0: not known
	Object   model.Key `json:"object,omitzero"` // zero where it is not known
	Field    string    `json:"field,omitempty"` // "spec.http[0].route[1].weight"; empty: the object as a whole
	Message  string    `json:"message"`
	Fix      Fix       `json:"fix,omitzero"` // zero: not known
	// fails: see RequestsFail.
	fails bool
}

// Fix is a change of the field that solves a problem: another name, or another value. One of the two is set.
type Fix struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"` // a scalar as text; see Number
	// Number: the value is written without quotes.
	Number bool `json:"number,omitempty"`
}

// Rename suggests another name for the field; empty: none.
func (p *Problem) Rename(name string) { p.Fix = Fix{Name: name} }

// Set suggests another value for the field, which is text; empty: none.
func (p *Problem) Set(value string) { p.Fix = Fix{Value: value} }

// SetNumber suggests a number as the value of the field.
func (p *Problem) SetNumber(value string) { p.Fix = Fix{Value: value, Number: true} }

// RequestsFail marks a warning about an object that is used although requests to a part of it fail. Analysis reports an error.
func (p *Problem) RequestsFail() { p.fails = true }

// Attrs are the attributes for a log: what is known of the place, and the message.
func (p Problem) Attrs() []any {
	var out []any
	for _, a := range []struct{ key, value string }{{"where", p.Where()}, {"object", p.objectName()}, {"field", p.Field}} {
		if a.value != "" {
			out = append(out, a.key, a.value)
		}
	}
	return append(out, "problem", p.Message)
}

func (p Problem) objectName() string {
	if p.Object == (model.Key{}) {
		return ""
	}
	return p.Object.String()
}

// Where is "file:line", or less where less is known.
func (p Problem) Where() string {
	if p.File == "" || p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Coded returns the message with its code, as analyze prints it: "... [MS1204]".
func (p Problem) Coded() string {
	if p.Code == "" {
		return p.Message
	}
	return fmt.Sprintf("%s [%s]", p.Message, p.Code)
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

// List is a list of them.
type List []Problem

// Analyzed returns the list as analysis reports it: an error is also what makes requests fail although its object is used.
func (ps List) Analyzed() List {
	out := slices.Clone(ps)
	for i := range out {
		if out[i].fails {
			out[i].Severity = SeverityError
		}
	}
	return out
}

// Solved returns the problems that a later list lacks. The line may differ: other lines may have been added above it.
func (ps List) Solved(later List) (out List) {
	left := make(map[Problem]struct{}, len(later))
	for _, p := range later {
		p.Line = 0
		left[p] = struct{}{}
	}
	for _, p := range ps {
		anyLine := p
		anyLine.Line = 0
		if _, ok := left[anyLine]; !ok {
			out = append(out, p)
		}
	}
	return out
}

// HasErrors reports whether the object must not be used.
func (ps List) HasErrors() bool { return ps.Count(SeverityError) > 0 }

// Count returns the number of problems of a severity.
func (ps List) Count(s Severity) int {
	n := 0
	for _, p := range ps {
		if p.Severity == s {
			n++
		}
	}
	return n
}

// Sort orders problems by their place: file, object (by the first line of its problems), line and field; of one
// place the gravest comes first. So all that is wrong with an object stands together.
func (ps List) Sort() {
	first := ps.firstLines()
	begin := func(p *Problem) int {
		if line, ok := first[p.group()]; ok {
			return line
		}
		return p.Line
	}
	slices.SortFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			strings.Compare(a.File, b.File),
			cmp.Compare(begin(&a), begin(&b)),
			a.Object.Compare(b.Object),
			cmp.Compare(a.Line, b.Line),
			compareFields(a.Field, b.Field),
			cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			strings.Compare(a.Message, b.Message),
		)
	})
}

// group is what problems of one object in one file have in common.
type group struct {
	file   string
	object model.Key
}

func (p *Problem) group() group { return group{p.File, p.Object} }

// firstLines are those of objects that are known by name: aliases lead to lines of others.
func (ps List) firstLines() map[group]int {
	first := map[group]int{}
	for i := range ps {
		p := &ps[i]
		if p.Object.Name == "" {
			continue
		}
		if line, ok := first[p.group()]; !ok || p.Line < line {
			first[p.group()] = p.Line
		}
	}
	return first
}

// compareFields orders fields by their names, and elements of lists by their numbers: http[2] before http[10].
func compareFields(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == 0 || y == 0 {
			x, y = 1, 1
		} else if x != y {
			return cmp.Compare(x, y)
		}
		if c := strings.Compare(a[:x], b[:y]); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return strings.Compare(a, b)
}

// digits is how many of them a text begins with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
