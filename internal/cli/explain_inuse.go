package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// explained is what "moonsail explain -o json" prints.
type explained struct {
	*explain.Explanation
	// InUse are some of the proxies that have ACKed it, and whether their Envoys use it.
	InUse []agents.Use `json:"inUse,omitempty"`
}

// inUse asks some Envoys whether they use an object's last change. Who cannot be asked is no
// reason not to explain it.
func (f *explainFlags) inUse(ctx context.Context, e *explain.Explanation) []agents.Use {
	if f.sample == 0 || e.Counts.Acked == 0 || e.Revision == 0 {
		return nil
	}
	var answer debug.InUse
	page := fmt.Sprintf("/debug/in-use/%s?max=%d", pathOf(e.Object), f.sample)
	if err := f.client.get(ctx, page, &answer); err != nil || answer.Revision != e.Revision {
		return nil // an older control plane, or it has changed again
	}
	return answer.Asked
}

// printInUse is "in use by 3 of 3 Envoys that were asked".
func printInUse(w io.Writer, s terminal.Style, list []agents.Use) error {
	if len(list) == 0 {
		return nil
	}
	asked, used := 0, 0
	var b strings.Builder
	for i := range list {
		u := &list[i]
		switch {
		case u.Error != "":
			fmt.Fprintf(&b, "  %s: %s\n", u.Proxy, s.Dim("not known: "+u.Error))
			continue
		case u.InUse:
			used++
		default:
			fmt.Fprintf(&b, "  %s: %s\n", u.Proxy, s.Warn("not in use yet: "+strings.Join(u.Why, "; ")))
		}
		asked++
	}
	text := fmt.Sprintf("in use by %d of %d Envoys that were asked", used, asked)
	switch {
	case asked == 0:
		text = s.Dim("whether Envoys use it is not known")
	case used == asked:
		text = s.Good(text)
	default:
		text = s.Warn(text)
	}
	_, err := fmt.Fprintf(w, "%s\n%s", text, b.String())
	return err
}
