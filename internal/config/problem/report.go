package problem

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// Report collects the problems of one object.
type Report struct {
	Object   model.Key
	Problems List
}

// maxProblems is how many problems of one object are kept.
const maxProblems = 100

// Full reports whether the report has as many problems as are kept of one object.
func (r *Report) Full() bool { return len(r.Problems) >= maxProblems }

// Add adds a problem of a field, and returns it until the next one is added. A full report takes only its first error.
func (r *Report) Add(c code.Code, s Severity, at Path, format string, args ...any) *Problem {
	if r.Full() && (s != SeverityError || r.Problems.HasErrors()) { // no error is lost behind warnings
		return &Problem{}
	}
	r.Problems = append(r.Problems, Problem{
		Severity: s, Code: c, Object: r.Object, Field: string(at), Message: fmt.Sprintf(format, args...),
	})
	return &r.Problems[len(r.Problems)-1]
}

// Errorf adds an error of a field: "problem: what to do", since the field is the subject.
func (r *Report) Errorf(c code.Code, at Path, format string, args ...any) *Problem {
	return r.Add(c, SeverityError, at, format, args...)
}

// Warnf adds a warning of a field, worded as errors are.
func (r *Report) Warnf(c code.Code, at Path, format string, args ...any) *Problem {
	return r.Add(c, SeverityWarning, at, format, args...)
}
