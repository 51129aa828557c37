package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// proxyTable is a list of proxies as rows.
type proxyTable struct {
	headings []string
	rows     []proxyRow
	widest   map[string]string // for --watch, a wide cell of a column whose cells change
}

type proxyRow struct {
	key    string // of the proxy, for --watch
	state  string // what --watch compares: no ages
	hidden bool   // --status does not choose it
	cells  []string
}

// Wide cells of the columns that change. Wider ones are rare.
const (
	widestStatus = "DISCONNECTED 59m59s"
	widestState  = "SENT 59m59s"
	widestAge    = "999h59m59s"
)

func (t *proxyTable) write(w io.Writer) error {
	out := terminal.NewTable(t.headings...)
	for i := range t.rows {
		out.Row(t.rows[i].cells...)
	}
	return out.Write(w)
}

// stateOf returns what --watch compares.
func stateOf(p *server.ProxyState) string {
	text := fmt.Sprint(p.Stream, p.Settled, p.Pending, p.ControlPlane, p.IsDisconnected())
	for i := range p.Types {
		t := &p.Types[i]
		text += fmt.Sprint(" ", t.Type, t.Progress(), len(t.Held), t.Waiting)
	}
	return text
}

// followInterval is the time between two looks of --watch.
const followInterval = time.Second

// follow prints a table, and then rows that changed, until ctx ends. A row that is gone is printed once more. Columns keep their
// widths. If there are others, or one needs more room, the headings are printed again.
func follow(ctx context.Context, w io.Writer, every time.Duration, fetch func(context.Context) (*proxyTable, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var headings []string
	var width []int
	last := map[string]proxyRow{}
	for {
		t, err := fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if wide := t.widths(); !slices.Equal(headings, t.headings) || anyWider(wide, width) {
			if slices.Equal(headings, t.headings) {
				wide = widest(wide, width)
			}
			headings, width = t.headings, wide
			if err := terminal.WriteRow(w, headings, width); err != nil {
				return err
			}
		}
		if last, err = t.writeChanged(w, width, last); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// writeChanged writes the rows that differ from those of last, and returns the rows of t. Rows that are gone are written in the
// order of their keys. A row that becomes hidden is written once more.
func (t *proxyTable) writeChanged(w io.Writer, width []int, last map[string]proxyRow) (map[string]proxyRow, error) {
	next := make(map[string]proxyRow, len(t.rows))
	for _, r := range t.rows {
		next[r.key] = r
		old, known := last[r.key]
		wasShown := known && !old.hidden
		if !r.hidden && (!wasShown || old.state != r.state) || r.hidden && wasShown {
			if err := terminal.WriteRow(w, r.cells, width); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if _, there := next[key]; there || last[key].hidden {
			continue
		}
		gone := append(slices.Clone(last[key].cells[:2]), terminal.StyleFor(w).Dim("DISCONNECTED"))
		if err := terminal.WriteRow(w, gone, width); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// widths returns a width for each column, with room for later rows.
func (t *proxyTable) widths() []int {
	const room = 4
	out := make([]int, len(t.headings))
	for i, h := range t.headings {
		out[i] = len(h) + room
		if wide, known := t.widest[h]; known {
			out[i] = max(len(h), len(wide))
		}
	}
	for _, r := range t.rows {
		for i, c := range r.cells[:min(len(r.cells), len(out))] {
			out[i] = max(out[i], terminal.PrintedWidth(c))
		}
	}
	return out
}

// anyWider reports whether a column of a is wider than that of b.
func anyWider(a, b []int) bool {
	for i := range a {
		if a[i] > b[i] {
			return true
		}
	}
	return false
}

// widest returns the larger width of each column.
func widest(a, b []int) []int {
	out := slices.Clone(a)
	for i := range out {
		out[i] = max(out[i], b[i])
	}
	return out
}
