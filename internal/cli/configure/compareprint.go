package configure

import (
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/terminal"
)

// printComparison writes a report for people.
func printComparison(w io.Writer, r *compare.Report) error {
	s := terminal.StyleFor(w)
	var b strings.Builder
	for i := range r.Differences {
		d := &r.Differences[i]
		fmt.Fprintf(&b, "%s %s\n", s.Bold(listed(d.Calls)), s.Dim("at "+listed(d.Proxies)))
		if len(d.Objects) > 0 {
			fmt.Fprintf(&b, "  %-21s %s\n", "objects", listed(d.Objects))
		}
		for _, c := range d.Changes {
			fmt.Fprintf(&b, "  %-21s %s %s\n  %-21s %s %s\n", c.What, s.Dim(r.Left+":"), c.Left, "", s.Dim(r.Right+":"), c.Right)
		}
		if d.Deliberate != nil {
			fmt.Fprintf(&b, "  %-21s %s (%s)\n", "on purpose", d.Deliberate.Reason, d.Deliberate.Page)
		}
		b.WriteByte('\n')
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "%s %s of %s: %s: for example %s at %s\n", s.Warn("undecided:"), terminal.Count(u.Count, "call"), u.Side, u.Reason, u.Call, u.Proxy)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s %s\n", s.Warn("note:"), n)
	}
	for side, names := range map[string][]string{r.Left: r.OnlyLeft, r.Right: r.OnlyRight} {
		if len(names) > 0 {
			fmt.Fprintf(&b, "%s %s only in %s, not compared: %s\n", s.Warn("note:"), terminal.Count(len(names), "proxy"), side, listed(names))
		}
	}
	fmt.Fprintf(&b, "%s\n", r.Summary())
	_, err := io.WriteString(w, b.String())
	return err
}
