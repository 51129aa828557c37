package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/terminal"
)

// printPropagation prints a report as text: measurements, then targets.
func printPropagation(w io.Writer, r *results.Report) error {
	s := terminal.StyleFor(w)
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
	for _, part := range []func(io.Writer, terminal.Style, *results.Report) error{printSingles, printPairs, printTrials} {
		if err := part(w, s, r); err != nil {
			return err
		}
	}
	return printWrong(w, s, r)
}

// printSingles prints the scenarios that change one thing at a time.
func printSingles(w io.Writer, s terminal.Style, r *results.Report) error {
	list := r.Singles()
	if len(list) == 0 {
		return nil
	}
	t := terminal.NewTable("MESH", "SCENARIO", "LAST p50", "BASELINE", "RATIO", "BARE", "ACK READ", "PROXY p50/p90/p99", "CPU/CHANGE", "BASELINE", "RATIO", "us/PROXY", "BYTES", "UNCONC.", "PEAK RSS", "STATE")
	for _, x := range list {
		t.Row(propagationRow(s, x)...)
	}
	fmt.Fprintf(w, "%s\n%s; times in ms, medians of %d changes; ratios are to the baseline, a server that computes nothing;\n"+
		"ACK READ: time until the last ACK was read, by control plane / baseline / bare TCP;\n"+
		"us/PROXY: CPU time for each proxy, of control plane / baseline / bare TCP\n\n", s.Dim(r.Machine.Line()), r.Subject, r.Rounds)
	if r.Machine.Busy() {
		fmt.Fprintf(w, "%s\n\n", s.Bad("the machine was busy when the run began: trust the ratios, not the numbers"))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	targets := terminal.NewTable("MESH", "SCENARIO", "TARGET", "MEASURED", "INTERVAL", "LIMIT", "")
	for _, x := range list {
		for _, b := range x.Targets {
			verdict := s.Good("met")
			if !b.Met {
				verdict = s.Bad("missed")
			}
			if why := b.Doubt(); why != "" {
				verdict += " (" + why + ")"
			}
			targets.Row(x.MeshName(), x.Scenario, b.What, b.Text(b.Value), b.Range(), b.Text(b.Limit), verdict)
		}
	}
	return targets.Write(w)
}

// printTrials prints the scenarios whose reports are those of package experiment.
func printTrials(w io.Writer, _ terminal.Style, r *results.Report) error {
	for _, x := range r.Results {
		if x.Report == nil {
			continue
		}
		fmt.Fprintln(w)
		if err := printExperiment(w, x.Report); err != nil {
			return err
		}
	}
	return nil
}

// printPairs compares with another control plane, if one was measured.
func printPairs(w io.Writer, s terminal.Style, r *results.Report) error {
	if r.Peer == nil || len(r.Pairs()) == 0 && r.Peer.Stopped == "" {
		return nil
	}
	fmt.Fprintf(w, "\nCompared with %s, on each mesh in turn, through one API server:\n\n", r.Peer.Name)
	t := terminal.NewTable("MESH", "SCENARIO", "WHAT", "OURS", strings.ToUpper(r.Peer.Name), "TIMES")
	for _, p := range r.Pairs() {
		for _, row := range p.Rows() {
			t.Row(p.Ours.MeshName(), p.Ours.Scenario, row.What, fmt.Sprintf("%.1f %s", row.Ours, row.Unit),
				fmt.Sprintf("%.1f %s", row.Peer, row.Unit), fmt.Sprintf("%.1fx", row.Times()))
		}
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for _, x := range r.Peer.Results {
		if x.State != nil && x.State.Wrong > 0 {
			fmt.Fprintf(w, "%s %s %s at %s: %s\n", s.Bad("wrong:"), x.MeshName(), x.Scenario, r.Peer.Name, x.State.First[0])
		}
	}
	if r.Peer.Stopped != "" {
		fmt.Fprintf(w, "%s %s\n", s.Bad(r.Peer.Name+":"), r.Peer.Stopped)
	}
	return nil
}

func propagationRow(s terminal.Style, x *results.Result) []string {
	ms := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	row := []string{x.MeshName(), x.Scenario, ms(x.Subject.Last.P50), "", "", "", ackRead(x),
		fmt.Sprintf("%.1f/%.1f/%.1f", x.Subject.Proxies.P50, x.Subject.Proxies.P90, x.Subject.Proxies.P99),
		ms(x.Subject.CPU.P50), "", "", microseconds(x), fmt.Sprintf("%.0f", x.Subject.Concerned.Bytes), fmt.Sprintf("%.0f", x.Subject.Unconcerned.Bytes), "", ""}
	if f := x.Baseline; f != nil {
		row[3], row[9] = ms(f.Last.P50), ms(f.CPU.P50)
		row[4], row[10] = quotient(x.Subject.Last.P50, f.Last.P50), quotient(x.Subject.CPU.P50, f.CPU.P50)
	}
	if x.Bare != nil {
		row[5] = ms(x.Bare.Last.P50)
	}
	if x.Subject.PeakRSS > 0 {
		row[14] = fmt.Sprintf("%d MB", x.Subject.PeakRSS>>20)
	}
	switch {
	case x.State == nil:
	case x.State.Wrong == 0:
		row[15] = s.Good("correct")
	default:
		row[15] = s.Bad(fmt.Sprintf("%d wrong", x.State.Wrong))
	}
	return row
}

// ackRead returns when the control plane, the baseline and bare TCP had read the last ACK.
func ackRead(x *results.Result) string {
	if x.Baseline == nil || x.Bare == nil || x.Subject.Heard.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f/%.1f/%.1f", x.Subject.Heard.P50, x.Baseline.Heard.P50, x.Bare.Heard.P50)
}

// microseconds returns the CPU time for each proxy that a change concerns: of the control plane, the
// baseline and bare TCP.
func microseconds(x *results.Result) string {
	if x.Baseline == nil || x.Bare == nil || x.Mesh.Proxies == 0 {
		return ""
	}
	text := ""
	for _, side := range []*results.Side{&x.Subject, x.Baseline, x.Bare} {
		text += fmt.Sprintf("/%.1f", 1000*side.CPU.P50/float64(x.Mesh.Proxies))
	}
	return text[1:]
}

func quotient(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", a/b)
}

func printWrong(w io.Writer, s terminal.Style, r *results.Report) error {
	for _, x := range r.Results {
		if x.Note != "" {
			fmt.Fprintf(w, "\n%s %s: %s\n", x.MeshName(), x.Scenario, x.Note)
		}
		if x.State == nil {
			continue
		}
		for _, text := range x.State.First {
			fmt.Fprintf(w, "%s %s %s: %s\n", s.Bad("wrong:"), x.MeshName(), x.Scenario, text)
		}
	}
	return nil
}
