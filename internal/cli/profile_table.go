package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/profile"
	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
	"github.com/moonsail/moonsail/internal/terminal"
)

// printProfile prints a profile for people: threads first, then functions.
func printProfile(w io.Writer, p *profile.Profile, top int) error {
	s := terminal.StyleFor(w)
	fmt.Fprintf(w, "%s: %.1f s, %d samples; names: %.0f%% of the innermost functions, %.0f%% of all frames\n\n",
		s.Bold(p.Subject), p.Seconds, p.Samples, 100*p.Named, 100*p.Frames)
	threads := terminal.NewTable(threadHeading(p), "CPU", "SAMPLES", "MOST IN")
	for _, t := range p.Threads {
		if idle(&t) {
			continue
		}
		most := "-"
		if len(t.Top) > 0 {
			most = cut(flamegraph.Plain(t.Top[0].Name))
		}
		threads.Row(cut(t.Name), cpuOf(t.CPU), partOf(t.Samples, p.Samples), most)
	}
	if err := threads.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	functions := terminal.NewTable("SELF", "TOTAL", "FUNCTION")
	for _, f := range p.Functions[:min(top, len(p.Functions))] {
		if f.Self > 0 {
			functions.Row(partOf(f.Self, p.Samples), partOf(f.Total, p.Samples), cut(flamegraph.Plain(f.Name)))
		}
	}
	return functions.Write(w)
}

// idle tells of threads that are no news where they did nothing: all but the main thread and
// the workers.
func idle(t *profile.Thread) bool {
	return t.Samples == 0 && t.CPU < 0.01 && !strings.HasPrefix(t.Name, "main:") && !strings.HasPrefix(t.Name, "wrk:")
}

func cpuOf(cpu float64) string {
	if cpu < 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f%%", 100*cpu)
}

func threadHeading(p *profile.Profile) string {
	if p.PID == 0 {
		return "GOROUTINES THAT BEGAN WITH"
	}
	return "THREAD"
}

func partOf(n, of int64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(of, 1))) }

// widestName is how much of a function's name a table has: the end says most.
const widestName = 100

func cut(name string) string {
	if text := []rune(name); len(text) > widestName {
		return "…" + string(text[len(text)-widestName+1:])
	}
	return name
}
