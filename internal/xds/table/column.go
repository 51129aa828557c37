package table

import (
	"hash/maphash"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// Bounds for what a column remembers besides live entries.
const (
	// slack: a log is compacted when it has more dead entries than half of the live ones, plus
	// slack.
	slack = 64
	// minGraves: a column remembers at least as many removed names as it ever had live entries, and
	// at least minGraves. At twice that many it forgets the older ones. The removals of one commit
	// are always remembered together.
	minGraves = 1024
)

// column has the resources of one type in one state. It is immutable. log and graves are ordered by
// revision, and share their arrays with the columns before and after: a column never reads beyond
// its own length.
type column struct {
	live   *iradix.Tree[*Entry]
	log    []*Entry     // every live entry once, and some dead ones
	graves []*tombstone // removals; some of the names exist again
	dead   int          // entries of log
	peak   int          // maximum number of live entries
	sum    uint64       // of the live entries' Hash

	forgotten                         model.Revision // removals up to here are not in graves
	lastAdded, lastChange, lastRemove model.Revision
	lastMadeOnDemand                  model.Revision // a name that had another form became a cluster on demand
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Hash returns the part of a name and version in State.Sum. It is valid in this process only.
func Hash(name, version []byte) uint64 {
	return maphash.Bytes(seeds[0], name) * (maphash.Bytes(seeds[1], version) | 1)
}

func newColumn() *column { return &column{live: iradix.New[*Entry]()} }

func (c *column) get(name string) *Entry {
	e, _ := c.live.Get([]byte(name))
	return e
}

// columnWriter writes the next version of a column.
type columnWriter struct {
	column // the new column
	txn    *iradix.Txn[*Entry]
	open   map[string]*tombstone // by name; of the table
	rev    model.Revision
}

func writeColumn(c *column, open map[string]*tombstone, rev model.Revision) *columnWriter {
	return &columnWriter{column: *c, txn: c.live.Txn(), open: open, rev: rev}
}

// set changes or removes a resource. It returns the entry that it replaced.
func (w *columnWriter) set(u *Update) (old *Entry, changed bool) {
	if u.Resource == nil {
		return w.remove(u.Name)
	}
	return w.put(newEntry(u.Name, u.Resource, u.Origins))
}

func (w *columnWriter) put(e *Entry) (old *Entry, changed bool) {
	old, _ = w.txn.Get([]byte(e.Name))
	if old != nil && old.Version == e.Version {
		old.origins.Store(e.MadeFrom())
		return old, false
	}
	e.Revision, e.Added = w.rev, w.rev
	if e.IsOnDemand() {
		w.noteOnDemand(e, old)
	}
	if old != nil {
		e.Added, e.was = old.Added, old.MadeFrom()
		w.bury(old)
	} else {
		w.lastAdded = w.rev
		w.undo(e.Name)
	}
	w.sum += Hash([]byte(e.Name), []byte(e.Version))
	w.txn.Insert([]byte(e.Name), e)
	w.log = append(w.log, e)
	w.lastChange = w.rev
	return old, true
}

// noteOnDemand records until when the name of a cluster on demand had another form. old is the entry that it replaces.
func (w *columnWriter) noteOnDemand(e, old *Entry) {
	switch g := w.open[e.Name]; {
	case old != nil && old.IsOnDemand():
		e.notOnDemandUntil = old.notOnDemandUntil
		return
	case old != nil:
		e.notOnDemandUntil = w.rev
	case g != nil:
		e.notOnDemandUntil = g.notOnDemandUntil
	}
	if e.notOnDemandUntil > 0 {
		w.lastMadeOnDemand = w.rev
	}
}

func (w *columnWriter) remove(name string) (old *Entry, changed bool) {
	old, ok := w.txn.Delete([]byte(name))
	if !ok {
		return nil, false
	}
	w.bury(old)
	g := &tombstone{name: name, rev: w.rev, was: old.MadeFrom(), notOnDemandUntil: w.rev}
	if old.IsOnDemand() {
		g.notOnDemandUntil = old.notOnDemandUntil
	}
	w.open[name] = g
	w.graves = append(w.graves, g)
	w.lastRemove = w.rev
	return old, true
}

func (w *columnWriter) bury(e *Entry) {
	e.replaced.Store(uint64(w.rev))
	w.dead++
	w.sum -= Hash([]byte(e.Name), []byte(e.Version))
}

func (w *columnWriter) undo(name string) {
	if g := w.open[name]; g != nil {
		g.undone.Store(uint64(w.rev))
		delete(w.open, name)
	}
}

// close returns the new column.
func (w *columnWriter) close() *column {
	w.live = w.txn.CommitOnly()
	w.peak = max(w.peak, w.live.Len())
	if w.dead > w.live.Len()/2+slack {
		w.compact()
	}
	if bound := max(w.peak, minGraves); len(w.graves) > 2*bound {
		w.forget(len(w.graves) - bound)
	}
	c := w.column
	return &c
}

// compact makes a log of live entries only. Its cost is in proportion to the changes since the last
// one.
func (w *columnWriter) compact() {
	log := make([]*Entry, 0, w.live.Len()+w.live.Len()/4+slack)
	for _, e := range w.log {
		if e.liveAt(w.rev) {
			log = append(log, e)
		}
	}
	w.log, w.dead = log, 0
}

// forget drops the oldest n tombstones, and the others of the same revision.
func (w *columnWriter) forget(n int) {
	w.forgotten = w.graves[n-1].rev
	for n < len(w.graves) && w.graves[n].rev == w.forgotten {
		n++
	}
	for _, g := range w.graves[:n] {
		if w.open[g.name] == g {
			delete(w.open, g.name)
		}
	}
	w.graves = slices.Clone(w.graves[n:])
}
