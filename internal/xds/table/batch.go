package table

import (
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// maxBatches bounds the selections that a state remembers. Others are made for each stream.
const maxBatches = 128

// Selection selects entries of a state: of a type, from After (exclusive) to Upto (inclusive), and,
// if Names is not nil, with these names. For virtual hosts Names are route configurations.
type Selection struct {
	Type        resource.Type
	After, Upto model.Revision
	Names       *names.Set
	// Partial selects clusters on demand only if Carried has them.
	Partial bool
	Carried *names.Set
}

// Batch has the entries of a selection, and their encoding. Streams with the same selection share
// it.
//
// Streams do not wait for each other here: a goroutine that does not run could hold up all others.
// Each one makes what is missing, and the first to finish shares its result.
type Batch struct {
	Entries []*Entry
	Memo    atomic.Value // shared by streams that were sent the batch; always of one type

	delta, sotw encodings
	sum         atomic.Pointer[uint64]
}

// batches are the selections of a state, newest first. The list only grows, up to maxBatches.
type batches struct{ head atomic.Pointer[remembered] }

type remembered struct {
	of    Selection
	batch *Batch
	next  *remembered
	count int // of this and the following
}

// find searches the selections before end, or all.
func (r *remembered) find(sel *Selection, end *remembered) *Batch {
	for ; r != end; r = r.next {
		if r.of == *sel {
			return r.batch
		}
	}
	return nil
}

// NewBatch returns a batch that is not shared.
func NewBatch(entries []*Entry) *Batch { return &Batch{Entries: entries} }

// nothing is the batch of all selections of a type of which a state has no entries.
var nothing = NewBatch(nil)

// Select returns the batch of a selection.
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

// add adds r, unless an equal selection was added since seen was loaded.
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
		if sel.has(e) {
			out = append(out, e)
		}
	}
	return out
}

// collectNamed looks up each name: a stream may want few of many.
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

func (sel *Selection) has(e *Entry) bool {
	switch {
	case sel.Partial && e.IsOnDemand() && !sel.Carried.Has(e.Name):
		return false
	case sel.Names == nil:
		return true
	case sel.Type == resource.VirtualHost:
		return sel.Names.Has(RouteConfigOf(e.Name))
	}
	return sel.Names.Has(e.Name)
}

// Delta returns the batch as `resources` fields of DeltaDiscoveryResponse.
func (b *Batch) Delta() []byte { return b.delta.join(b.Entries, (*resource.Encoded).DeltaField) }

// Sotw returns the batch as `resources` fields of DiscoveryResponse.
func (b *Batch) Sotw() []byte { return b.sotw.join(b.Entries, (*resource.Encoded).SotwField) }

// Sum returns a hash of the entries' names and versions. Sums of batches without common names can
// be added.
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
	return *j.bytes.Load() // all streams share one copy
}
