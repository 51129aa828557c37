package experiment

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/plot"
)

// Cell is a variant's metric for people: the median, and half the distance of the quartiles;
// "" where it was not measured.
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

// Value is a comparison's number for people.
func (r *Report) Value(c *Comparison, v float64) string {
	if m := r.Metric(c.Metric); m.Absolute {
		return fmt.Sprintf("%+.3g %s", v, m.Unit)
	}
	return fmt.Sprintf("%.2fx", v)
}

// Range is its interval.
func (r *Report) Range(c *Comparison) string {
	return r.Value(c, c.Low) + " to " + r.Value(c, c.High)
}

// Good tells whether a difference is for the better (1), for the worse (-1), or neither.
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

// Text is a number of a bar with its unit.
func (r *Report) Text(b *Limit, v float64) string {
	m := r.Metric(b.Metric)
	if b.Base != "" && !m.Absolute {
		return fmt.Sprintf("%.2fx", v)
	}
	return strings.TrimSpace(plot.Short(v) + " " + m.Unit)
}

// Measured is what a bar's value was, if it was measured.
func (r *Report) Measured(b *Limit) string {
	if b.Verdict == NotMeasured {
		return ""
	}
	return r.Text(b, b.Value)
}

// Want is a bar's limit in words.
func (r *Report) Want(b *Limit) string {
	if b.AtLeast {
		return "at least " + r.Text(b, b.Limit)
	}
	return "at most " + r.Text(b, b.Limit)
}

// BarRange is a bar's interval.
func (r *Report) BarRange(b *Limit) string {
	if b.Verdict == NotMeasured {
		return ""
	}
	return r.Text(b, b.Low) + " to " + r.Text(b, b.High)
}

// Line is a report's machine and size in one line.
func (r *Report) Line() string {
	return r.Machine.Line() + fmt.Sprintf("; %d of %d rounds in %.0f s", r.Rounds, r.RoundsAsked, r.Took)
}
