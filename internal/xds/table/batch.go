package table

import (
	"sync"

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

type batchKey = Selection

// Batch is the entries of one selection and their encoding: made once, shared by all
// streams that take the same.
type Batch struct {
	Entries []*Entry

	fill  sync.Once
	delta encodings
	sotw  encodings

	summing sync.Once
	sum     uint64 // after summing
}

type encodings struct {
	once  sync.Once
	bytes []byte
}

// NewBatch is a batch of one's own.
func NewBatch(entries []*Entry) *Batch { return &Batch{Entries: entries} }

// Select gives the batch of a selection.
func (s *State) Select(sel Selection) *Batch {
	b := s.batch(sel)
	b.fill.Do(func() { b.Entries = s.collect(sel) })
	return b
}

func (s *State) batch(key batchKey) *Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.batches[key]; b != nil {
		return b
	}
	b := &Batch{}
	if s.batches == nil {
		s.batches = map[batchKey]*Batch{}
	}
	if len(s.batches) < maxBatches {
		s.batches[key] = b
	}
	return b
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
	b.summing.Do(func() {
		for _, e := range b.Entries {
			b.sum += partHash(e.Name, e.Version)
		}
	})
	return b.sum
}

func (j *encodings) join(entries []*Entry, field func(*resource.Encoded) []byte) []byte {
	if len(entries) == 1 {
		return field(entries[0].Resource())
	}
	j.once.Do(func() {
		n := 0
		for _, e := range entries {
			n += len(field(e.Resource()))
		}
		j.bytes = make([]byte, 0, n)
		for _, e := range entries {
			j.bytes = append(j.bytes, field(e.Resource())...)
		}
	})
	return j.bytes
}
