package configure

import (
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/terminal"
)

// printComparison writes a report for people: each difference, those on purpose by their reason, and the summary.
func printComparison(w io.Writer, r *compare.Report) error {
	s := terminal.StyleFor(w)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s\n", s.Bad(r.Left), s.Dim("->"), s.Good(r.Right))
	for i := range r.Differences {
		d := &r.Differences[i]
		if d.Deliberate != nil {
			continue
		}
		fmt.Fprintf(&b, "\n%s %s\n", s.Bold(listed(d.Calls)), s.Dim("at "+listed(d.Proxies)))
		for _, c := range d.Changes {
			fmt.Fprintf(&b, "  %-21s %s %s %s\n", c.What, s.Bad(c.Left), s.Dim("->"), s.Good(c.Right))
		}
		if len(d.Objects) > 0 {
			fmt.Fprintf(&b, "  %-21s %s\n", "see", listed(d.Objects))
		}
	}
	printDeliberate(&b, s, r)
	b.WriteByte('\n')
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "%s %s of %s: %s (for example %s at %s)\n", s.Warn("undecided:"), terminal.Count(u.Count, "call"), u.Side, u.Reason, u.Call, u.Proxy)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s %s\n", s.Warn("note:"), n)
	}
	only := func(side string, names []string) {
		if len(names) > 0 {
			fmt.Fprintf(&b, "%s not compared: %s of %s only: %s\n", s.Warn("note:"), terminal.Count(len(names), "proxy"), side, listed(names))
		}
	}
	only(r.Left, r.OnlyLeft)
	only(r.Right, r.OnlyRight)
	fmt.Fprintf(&b, "%s\n", r.Summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// printDeliberate writes the differences on purpose, one line for each reason.
func printDeliberate(b *strings.Builder, s terminal.Style, r *compare.Report) {
	var order []compare.Deliberate
	counts, examples := map[compare.Deliberate]int{}, map[compare.Deliberate]string{}
	for i := range r.Differences {
		d := &r.Differences[i]
		if d.Deliberate == nil {
			continue
		}
		if counts[*d.Deliberate] == 0 {
			order = append(order, *d.Deliberate)
			examples[*d.Deliberate] = d.Calls[0]
		}
		counts[*d.Deliberate] += d.Count
	}
	for _, why := range order {
		fmt.Fprintf(b, "\n%s %s, for example %s\n  %s\n  %s\n", s.Warn("on purpose:"), terminal.Count(counts[why], "call"), examples[why], why.Reason, s.Dim(why.Page))
	}
}
