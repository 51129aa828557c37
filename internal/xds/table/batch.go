package table

import (
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// maxBatches bounds the selections that a state remembers; further ones are made anew
// for each stream.
const maxBatches = 128

// Selection says which entries of a state: of a type, from After (exclusive) to Upto
// (inclusive), and where Names is not nil, those that are in it. For virtual hosts Names
// are route configurations.
type Selection struct {
	Type        resource.Type
	After, Upto model.Revision
	Names       *names.Set
}

// Batch is the entries of one selection and their encoding: made once, shared by all
// streams that take the same.
//
// Streams never wait for each other here, as one that is not running may be the one to
// wait for: whoever finds something missing makes it, and the first to be done shares it.
type Batch struct {
	Entries []*Entry
	Memo    atomic.Value // what streams that were sent it share; always of one type

	delta, sotw encodings
	sum         atomic.Pointer[uint64]
}

// batches are the selections that were made of a state, newest first. It only grows.
type batches struct{ head atomic.Pointer[remembered] }

type remembered struct {
	of    Selection
	batch *Batch
	next  *remembered
	count int // with what follows
}

// find looks among those before end, or all.
func (r *remembered) find(sel *Selection, end *remembered) *Batch {
	for ; r != end; r = r.next {
		if r.of == *sel {
			return r.batch
		}
	}
	return nil
}

// NewBatch is a batch of one's own.
func NewBatch(entries []*Entry) *Batch { return &Batch{Entries: entries} }

// nothing is the batch of all selections of a type that a state has none of.
var nothing = NewBatch(nil)

// Select gives the batch of a selection.
func (s *State) Select(sel Selection) *Batch {
	if s.Len(sel.Type) == 0 {
		return nothing
	}
	seen := s.batches.head.Load()
	if b := seen.find(&sel, nil); b != nil {
		return b
	}
	return s.batches.add(seen, &remembered{of: sel, batch: NewBatch(s.collect(sel))})
}

// add adds r, unless others were quicker than its maker, who has looked at all from seen on.
func (l *batches) add(seen, r *remembered) *Batch {
	for {
		head := l.head.Load()
		if b := head.find(&r.of, seen); b != nil {
			return b
		}
		if r.next, r.count = head, 1; head != nil {
			r.count += head.count
		}
		if r.count > maxBatches || l.head.CompareAndSwap(head, r) {
			return r.batch
		}
	}
}

func (s *State) collect(sel Selection) []*Entry {
	if sel.Names != nil && sel.After == 0 {
		return s.collectNamed(sel)
	}
	var out []*Entry
	for e := range s.Changed(sel.Type, sel.After) {
		if e.Revision > sel.Upto {
			break
		}
		if sel.has(e.Name) {
			out = append(out, e)
		}
	}
	return out
}

// collectNamed looks each name up: a stream may want few of many.
func (s *State) collectNamed(sel Selection) []*Entry {
	var out []*Entry
	take := func(e *Entry) {
		if e != nil && e.Revision <= sel.Upto {
			out = append(out, e)
		}
	}
	for n := range sel.Names.All() {
		if sel.Type == resource.VirtualHost {
			s.columns[resource.VirtualHost].under(n).each(take)
		} else {
			take(s.Get(sel.Type, n))
		}
	}
	return out
}

func (sel *Selection) has(name string) bool {
	switch {
	case sel.Names == nil:
		return true
	case sel.Type == resource.VirtualHost:
		return sel.Names.Has(RouteConfigOf(name))
	}
	return sel.Names.Has(name)
}

// Delta is the batch as `resources` fields of DeltaDiscoveryResponse, one after the other.
func (b *Batch) Delta() []byte { return b.delta.join(b.Entries, (*resource.Encoded).DeltaField) }

// Sotw is the batch as `resources` fields of DiscoveryResponse.
func (b *Batch) Sotw() []byte { return b.sotw.join(b.Entries, (*resource.Encoded).SotwField) }

// Sum is a hash of the entries' names and versions. Sums of batches without a common
// name can be added.
func (b *Batch) Sum() uint64 {
	if sum := b.sum.Load(); sum != nil {
		return *sum
	}
	var sum uint64
	for _, e := range b.Entries {
		sum += partHash(e.Name, e.Version)
	}
	b.sum.Store(&sum)
	return sum
}

// encodings are the encoded entries, one after the other.
type encodings struct{ bytes atomic.Pointer[[]byte] }

func (j *encodings) join(entries []*Entry, field func(*resource.Encoded) []byte) []byte {
	if len(entries) == 1 {
		return field(entries[0].Resource())
	}
	if b := j.bytes.Load(); b != nil {
		return *b
	}
	n := 0
	for _, e := range entries {
		n += len(field(e.Resource()))
	}
	out := make([]byte, 0, n)
	for _, e := range entries {
		out = append(out, field(e.Resource())...)
	}
	if j.bytes.CompareAndSwap(nil, &out) {
		return out
	}
	return *j.bytes.Load() // all streams hold one copy
}
