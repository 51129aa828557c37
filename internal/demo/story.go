package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// Style paints text for terminals; the zero value leaves it as it is.
type Style struct {
	Good, Warn, Bad, Dim, Bold func(string) string
}

func paint(f func(string) string, text string) string {
	if f == nil {
		return text
	}
	return f(text)
}

// story tells people what happens, a line at a time, each with the time since the start.
type story struct {
	out   io.Writer
	style Style
	began time.Time
	rows  []row
	total int // steps
}

// row is a line of the summary.
type row struct {
	step    string
	changes []way
	detail  string
	counts  Counts
}

func (s *story) say(format string, args ...any) {
	at := fmt.Sprintf("%6.1fs ", time.Since(s.began).Seconds())
	fmt.Fprintf(s.out, "%s %s\n", paint(s.style.Dim, at), fmt.Sprintf(format, args...))
}

// title begins a step.
func (s *story) title(format string, args ...any) {
	s.total++
	fmt.Fprintf(s.out, "\n%s\n", paint(s.style.Bold, fmt.Sprintf("%d. %s", s.total, fmt.Sprintf(format, args...))))
}

// tell prints a change's way. The stages' numbers add up to the whole.
func (s *story) tell(w way) {
	stages, total := w.Timeline.Split(100 * time.Microsecond)
	names := [changelog.NumStages]string{"stored", "derived", "translated", "sent", "ACKed by " + w.Proxies.Fraction()}
	var b strings.Builder
	b.WriteString("event")
	for i, d := range stages {
		fmt.Fprintf(&b, " -> %s %.1f", strings.Replace(names[i], "/", " of ", 1), ms(d))
	}
	s.say("  %s: %s = %s, %d bytes in %d resources", w.Summary(1), b.String(),
		paint(s.style.Bold, fmt.Sprintf("%.1f ms", ms(total))), w.Bytes, w.Resources)
	if late := w.Observed.Sub(w.written); late >= time.Millisecond {
		s.say("  %s", paint(s.style.Dim, fmt.Sprintf("(the file was written %.1f ms before the event was seen)", ms(late))))
	}
}

// traffic prints how the requests of a step went.
func (s *story) traffic(c Counts) {
	text := "traffic: " + c.String()
	if c.Failed > 0 {
		s.say("  %s", paint(s.style.Bad, text))
		for _, r := range c.reasons() {
			s.say("    %s", r)
		}
		return
	}
	s.say("  %s", paint(s.style.Good, text))
}

// finish adds a step to the summary.
func (s *story) finish(step, detail string, c Counts, changes ...way) {
	s.rows = append(s.rows, row{step, changes, detail, c})
}

// summary prints the table of all steps.
func (s *story) summary() {
	table := [][]string{{"STEP", "CHANGE -> LAST ACK", "PROXIES", "REQUESTS", "FAILED", "NOTE"}}
	for _, r := range s.rows {
		var took, proxies []string
		for _, w := range r.changes {
			took = append(took, fmt.Sprintf("%.1f", ms(w.total())))
			if f := w.Proxies.Fraction(); len(proxies) == 0 || proxies[len(proxies)-1] != f {
				proxies = append(proxies, f)
			}
		}
		change := "-"
		if len(took) > 0 {
			change = strings.Join(took, ", ") + " ms"
		}
		table = append(table, []string{r.step, change, dash(strings.Join(proxies, ", ")),
			fmt.Sprint(r.counts.Requests), fmt.Sprint(r.counts.Failed), r.detail})
	}
	fmt.Fprintln(s.out)
	printTable(s.out, s.style, table)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// printTable aligns columns; the first row is the heading.
func printTable(w io.Writer, style Style, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, r := range table {
		for i, cell := range r {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for i, r := range table {
		var b strings.Builder
		for j, cell := range r {
			fmt.Fprintf(&b, "%-*s  ", widths[j], cell)
		}
		line := strings.TrimRight(b.String(), " ")
		if i == 0 {
			line = paint(style.Bold, line)
		}
		fmt.Fprintln(w, line)
	}
}
