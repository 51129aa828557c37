package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
)

const (
	pollInterval = 200 * time.Millisecond
	// lateAfter is when a change that is still on its way is printed as it stands. It is
	// printed again once it is distributed.
	lateAfter = 2 * time.Second
	// watched bounds how many changes one poll brings.
	watched = 1000
)

// changeWatch knows what --watch has printed. It is pure: polls go in, rows come out.
type changeWatch struct {
	newest model.Revision
	open   map[model.Revision]bool // seen and not distributed; true: printed as late
}

// next gives the changes to print now, oldest first.
func (cw *changeWatch) next(list debug.ChangeList) []changelog.Change {
	if list.Newest < cw.newest { // another control plane: its revisions start again
		cw.newest = 0
		cw.open = nil
	}
	var out []changelog.Change
	for _, c := range slices.Backward(list.Changes) {
		late, known := cw.open[c.Revision]
		switch {
		case !known && c.Revision <= cw.newest:
			// printed before
		case c.State == changelog.Distributed:
			delete(cw.open, c.Revision)
			out = append(out, c)
		default:
			if !late && list.Now.Sub(c.Observed) >= lateAfter {
				late = true
				out = append(out, c)
			}
			cw.keep(c.Revision, late)
		}
	}
	cw.newest = list.Newest
	cw.forget(list)
	return out
}

func (cw *changeWatch) keep(rev model.Revision, late bool) {
	if cw.open == nil {
		cw.open = map[model.Revision]bool{}
	}
	cw.open[rev] = late
}

// forget drops what was asked for and is not in the answer: the control plane has forgotten it.
func (cw *changeWatch) forget(list debug.ChangeList) {
	for rev := range cw.open {
		if !slices.ContainsFunc(list.Changes, func(c changelog.Change) bool { return c.Revision == rev }) {
			delete(cw.open, rev)
		}
	}
}

// after is the revision from which on the next poll must ask.
func (cw *changeWatch) after() model.Revision {
	after := cw.newest
	for rev := range maps.Keys(cw.open) {
		after = min(after, rev-1)
	}
	return after
}

// follow prints list and then what comes, until ctx ends.
func (f *changesFlags) follow(ctx context.Context, w io.Writer, list debug.ChangeList) error {
	headings := make([]string, len(changeColumns))
	for i, c := range changeColumns {
		headings[i] = terminal.StyleFor(w).Bold(c.heading)
	}
	if err := writeFixed(w, headings); err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var cw changeWatch
	for {
		for _, c := range cw.next(list) {
			if err := writeFixed(w, changeRow(terminal.StyleFor(w), &c, list.Now)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var err error
		if list, err = f.poll(ctx, &cw); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func (f *changesFlags) poll(ctx context.Context, cw *changeWatch) (debug.ChangeList, error) {
	list, err := f.fetch(ctx, watched, cw.after())
	if err == nil && list.Newest < cw.newest { // restarted: what it has is before what was asked for
		return f.fetch(ctx, watched, 0)
	}
	return list, err
}

// writeFixed writes a row in the widths of changeColumns.
func writeFixed(w io.Writer, row []string) error {
	width := make([]int, len(changeColumns))
	for i, c := range changeColumns {
		width[i] = c.width
	}
	return terminal.WriteRow(w, row, width)
}
