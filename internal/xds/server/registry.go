package server

import (
	"slices"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// registry has the open streams, and the tables that they are bound to.
type registry struct {
	mu      sync.Mutex // guards the fields, and the fields of streams that say so
	last    uint64
	streams map[uint64]*stream
	byTable map[*table.Table][]*stream
	moved   map[*stream]bool       // bound to other tables since the last publication
	pairs   map[string]*streamPair // of proxies that ask for clusters by name, by node ID
}

// streamPair has the newest streams of a proxy: the one of everything, and the one on which it asks. Either may be nil.
type streamPair struct{ all, asks *stream }

// tableSlot is the position of a stream in the list of a table.
type tableSlot struct {
	table *table.Table
	index int
}

func (r *registry) init() {
	r.streams = map[uint64]*stream{}
	r.byTable = map[*table.Table][]*stream{}
	r.moved = map[*stream]bool{}
	r.pairs = map[string]*streamPair{}
}

// add adds a stream. If the engine has rebound it before, it gets those tables.
func (r *registry) add(st *stream, tables []*table.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	st.number = r.last
	r.streams[st.number] = st
	if st.bindNext == nil {
		st.bindNext = tables
	}
	r.link(st)
}

// rebind moves a stream to other tables.
func (r *registry) rebind(st *stream, tables []*table.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st.bindNext = tables
	if r.streams[st.number] == st {
		r.unlink(st)
		r.link(st)
		r.moved[st] = true
	}
}

// tables returns the tables that a stream is bound to, if they changed since the last call.
func (r *registry) tables(st *stream) []*table.Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := st.bindNext
	st.bindNext = nil
	return t
}

// remove removes a stream. The streams that settle with it no longer wait for it.
func (r *registry) remove(st *stream) {
	r.mu.Lock()
	var left []*stream
	if r.streams[st.number] == st {
		delete(r.streams, st.number)
		delete(r.moved, st)
		r.unlink(st)
		left = r.unpair(st)
	}
	r.mu.Unlock()
	wakeAll(left)
}

// pair joins the two streams of a proxy. Proxies that have all clusters have one.
func (r *registry) pair(st *stream) {
	if !st.asked && (len(st.bindNext) == 0 || st.bindNext[0] == nil || !st.bindNext[0].OnDemand()) {
		return
	}
	p := r.pairs[st.proxy.ID]
	if p == nil {
		p = &streamPair{}
		r.pairs[st.proxy.ID] = p
	}
	if st.asked {
		p.asks = newer(p.asks, st)
	} else {
		p.all = newer(p.all, st)
	}
	if p.all != nil && p.asks != nil {
		p.all.follow(p.asks)
	}
}

// follow makes a stream of everything settle with a stream on which its proxy asks. Older ones that follow it go on: they may
// be of the same proxy, which has connected again, or of another one with the same node ID. The registry's lock is held.
func (st *stream) follow(asks *stream) {
	if st.other.Load() == asks {
		return
	}
	st.unfollow()
	list := append(slices.Clone(asks.following()), st)
	asks.followers.Store(&list)
	st.other.Store(asks)
}

// unfollow ends what follow began. The registry's lock is held.
func (st *stream) unfollow() {
	asks := st.other.Swap(nil)
	if asks == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(asks.following()), func(f *stream) bool { return f == st })
	asks.followers.Store(&list)
}

// unpair ends the part of a stream in its pair, and returns the streams that no longer settle with it.
func (r *registry) unpair(st *stream) (left []*stream) {
	if p := r.pairs[st.proxy.ID]; p != nil {
		if p.all == st {
			p.all = nil
		}
		if p.asks == st {
			p.asks = nil
		}
		if p.all == nil && p.asks == nil {
			delete(r.pairs, st.proxy.ID)
		}
	}
	st.unfollow()
	left = st.following()
	for _, f := range left {
		f.other.Store(nil)
	}
	st.followers.Store(nil)
	return left
}

func (r *registry) link(st *stream) {
	r.pair(st)
	for i, t := range st.bindNext {
		if i < MaxTables && t != nil {
			st.slots[i] = tableSlot{t, len(r.byTable[t])}
			r.byTable[t] = append(r.byTable[t], st)
		}
	}
}

func (r *registry) unlink(st *stream) {
	for i, p := range st.slots {
		if p.table == nil {
			continue
		}
		list := r.byTable[p.table]
		last := list[len(list)-1]
		list[p.index] = last
		list[len(list)-1] = nil
		for j := range last.slots {
			if last.slots[j] == (tableSlot{p.table, len(list) - 1}) {
				last.slots[j].index = p.index
			}
		}
		if r.byTable[p.table] = list[:len(list)-1]; len(list) == 1 {
			delete(r.byTable, p.table)
		}
		st.slots[i] = tableSlot{}
	}
}

// bound appends the streams that rev concerns, each once: those that are bound to any of the tables, and those that moved
// to other tables since the last call, which may differ though rev did not change them. Streams on which proxies ask for
// clusters come first.
func (r *registry) bound(rev model.Revision, tables []*table.Table, out []*stream) []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := 0
	add := func(st *stream) {
		if st.counted == rev {
			return
		}
		st.counted = rev
		if out = append(out, st); st.asked {
			out[asked], out[len(out)-1] = st, out[asked]
			asked++
		}
	}
	for _, t := range tables {
		for _, st := range r.byTable[t] {
			add(st)
		}
	}
	for st := range r.moved {
		add(st)
	}
	clear(r.moved)
	return out
}

// proxies returns the streams of everything: one for each proxy, unless it has connected again.
func (r *registry) proxies() []*stream {
	return slices.DeleteFunc(r.all(), func(st *stream) bool { return st.asked })
}

// asking returns the stream on which a proxy asks for clusters by name; nil: there is none.
func (st *stream) asking() *stream {
	if st.asked {
		return nil
	}
	return st.other.Load()
}

// all returns the open streams of both kinds.
func (r *registry) all() []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*stream, 0, len(r.streams))
	for _, st := range r.streams {
		out = append(out, st)
	}
	return out
}
