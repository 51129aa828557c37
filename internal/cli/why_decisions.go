package cli

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// decisionText is one policy's say in a call, for people.
func decisionText(d *simulate.Decision) string {
	var b strings.Builder
	b.WriteString(d.Action)
	if d.Policy != "" {
		fmt.Fprintf(&b, " %s, rule %d,", d.Policy, d.Rule)
	}
	switch {
	case len(d.Among) > 0:
		fmt.Fprintf(&b, ": no policy matches (%s), so it is refused", strings.Join(d.Among, ", "))
	case d.Refuses:
		b.WriteString(" refuses it")
	case d.Action == "AUDIT":
		b.WriteString(" marks it")
	case d.Asks != "":
		fmt.Fprintf(&b, " has %s asked, which is taken to consent", d.Asks)
	default:
		b.WriteString(" matches it")
	}
	if d.Cause != "" {
		b.WriteString(": " + d.Cause)
	}
	if d.DryRun {
		b.WriteString(" (dry run: it has no effect)")
	}
	return b.String()
}
