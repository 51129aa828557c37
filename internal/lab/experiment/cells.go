package experiment

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/plot"
)

// Cell formats a metric of a variant: the median and half the interquartile range, or "" if it was not measured.
func (r *Result) Cell(metric string) string {
	s, ok := r.Summary[metric]
	if !ok {
		return ""
	}
	if s.N < 2 {
		return plot.Short(s.Median)
	}
	return fmt.Sprintf("%s ±%s", plot.Short(s.Median), plot.Short((s.Q3-s.Q1)/2))
}

// Value formats a number of a comparison.
func (r *Report) Value(c *Comparison, v float64) string {
	if m := r.Metric(c.Metric); m.Absolute {
		return fmt.Sprintf("%+.3g %s", v, m.Unit)
	}
	return fmt.Sprintf("%.2fx", v)
}

// Range formats the interval of a comparison.
func (r *Report) Range(c *Comparison) string {
	return r.Value(c, c.Low) + " to " + r.Value(c, c.High)
}

// Good returns 1 for a better, -1 for a worse variant, and 0 for neither.
func (r *Report) Good(c *Comparison) int {
	better := r.Metric(c.Metric).Better
	switch {
	case better == "" || c.Verdict != IsHigher && c.Verdict != IsLower:
		return 0
	case (c.Verdict == IsHigher) == (better == Higher):
		return 1
	}
	return -1
}

// Text formats a number with the unit of a target.
func (r *Report) Text(b *TargetResult, v float64) string {
	m := r.Metric(b.Metric)
	if b.Base != "" && !m.Absolute {
		return fmt.Sprintf("%.2fx", v)
	}
	return strings.TrimSpace(plot.Short(v) + " " + m.Unit)
}

// Measured formats the measured value of a target, or returns "" if there is none.
func (r *Report) Measured(b *TargetResult) string {
	if b.Verdict == NotMeasured {
		return ""
	}
	return r.Text(b, b.Value)
}

// Want formats the limit of a target.
func (r *Report) Want(b *TargetResult) string {
	if b.AtLeast {
		return "at least " + r.Text(b, b.Limit)
	}
	return "at most " + r.Text(b, b.Limit)
}

// TargetRange formats the interval of a target.
func (r *Report) TargetRange(b *TargetResult) string {
	if b.Verdict == NotMeasured {
		return ""
	}
	return r.Text(b, b.Low) + " to " + r.Text(b, b.High)
}

// Line describes the machine and the rounds in one line.
func (r *Report) Line() string {
	return r.Machine.Line() + fmt.Sprintf("; %d of %d rounds in %.0f s", r.Rounds, r.RoundsAsked, r.Took)
}
