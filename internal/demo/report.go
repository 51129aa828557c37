package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
)

// report prints what happens, each line with the time since the start, and collects the rows of the summary.
type report struct {
	out   io.Writer
	style terminal.Style
	began time.Time
	rows  []row
	steps int // begun so far
}

// row is a step in the summary.
type row struct {
	step    string
	changes []timedChange
	detail  string
	counts  Counts
}

// logf prints a line with the time since the start.
func (r *report) logf(format string, args ...any) {
	at := fmt.Sprintf("%6.1fs ", time.Since(r.began).Seconds())
	fmt.Fprintf(r.out, "%s %s\n", r.style.Dim(at), fmt.Sprintf(format, args...))
}

// beginStep prints the title of the next step.
func (r *report) beginStep(format string, args ...any) {
	r.steps++
	fmt.Fprintf(r.out, "\n%s\n", r.style.Bold(fmt.Sprintf("%d. %s", r.steps, fmt.Sprintf(format, args...))))
}

// printChange prints the stages of a change. They add up to the total.
func (r *report) printChange(w timedChange) {
	stages, total := w.Timeline.Split(100 * time.Microsecond)
	names := [changelog.NumStages]string{"stored", "derived", "translated", "sent", "ACKed by " + w.Proxies.Fraction()}
	var b strings.Builder
	b.WriteString("event")
	for i, d := range stages {
		fmt.Fprintf(&b, " -> %s %.1f", strings.Replace(names[i], "/", " of ", 1), ms(d))
	}
	r.logf("  %s: %s = %s, %d bytes in %d resources", w.Summary(1), b.String(),
		r.style.Bold(fmt.Sprintf("%.1f ms", ms(total))), w.Bytes, w.Resources)
	if late := w.Observed.Sub(w.written); late >= time.Millisecond {
		r.logf("  %s", r.style.Dim(fmt.Sprintf("(the file was written %.1f ms before the event was seen)", ms(late))))
	}
}

// printTraffic prints the results of the requests of a step.
func (r *report) printTraffic(c Counts) {
	text := "traffic: " + c.String()
	if c.Failed > 0 {
		r.logf("  %s", r.style.Bad(text))
		for _, reason := range c.reasons() {
			r.logf("    %s", reason)
		}
		return
	}
	r.logf("  %s", r.style.Good(text))
}

// addRow adds a step to the summary.
func (r *report) addRow(step, detail string, c Counts, changes ...timedChange) {
	r.rows = append(r.rows, row{step, changes, detail, c})
}

// printSummary prints the table of all steps.
func (r *report) printSummary() error {
	table := terminal.NewTable("STEP", "CHANGE -> LAST ACK", "PROXIES", "REQUESTS", "FAILED", "NOTE")
	for _, one := range r.rows {
		var took, proxies []string
		for _, w := range one.changes {
			took = append(took, fmt.Sprintf("%.1f", ms(w.total())))
			if f := w.Proxies.Fraction(); len(proxies) == 0 || proxies[len(proxies)-1] != f {
				proxies = append(proxies, f)
			}
		}
		change := "-"
		if len(took) > 0 {
			change = strings.Join(took, ", ") + " ms"
		}
		table.Row(one.step, change, terminal.OrDash(strings.Join(proxies, ", ")),
			fmt.Sprint(one.counts.Requests), fmt.Sprint(one.counts.Failed), one.detail)
	}
	fmt.Fprintln(r.out)
	return table.Write(r.out)
}

// printColumns aligns two columns.
func printColumns(w io.Writer, rows [][2]string) {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%-*s  %s\n", width, r[0], r[1])
	}
}
