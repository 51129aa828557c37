package model

import (
	"hash/maphash"
	"slices"
	"sync"
	"weak"
)

// Origins is the set of objects that a piece of configuration was made from. It is immutable, and
// nil is the empty set. Equal sets of one process share their memory.
//
// An origin is an object whose content went into the result, or whose presence decided it. An
// object that was looked for and not found is none. The mesh's configuration, namespaces, nodes
// and Pods are never among them: they shape everything, or are too many.
type Origins struct {
	keys []Key // in the order of Key.Compare, each once
}

// OriginsOf makes a set of keys, in any order. It keeps no reference to the list.
func OriginsOf(keys ...Key) *Origins {
	switch len(keys) {
	case 0:
		return nil
	case 1:
		return originSets.intern(keys)
	}
	return originSets.intern(sortedKeys(keys))
}

// sortedKeys is keys itself where they are in order, each once.
func sortedKeys(keys []Key) []Key {
	for i := 1; i < len(keys); i++ {
		if keys[i-1].Compare(keys[i]) >= 0 {
			out := slices.Clone(keys)
			slices.SortFunc(out, Key.Compare)
			return slices.Compact(out)
		}
	}
	return keys
}

// Keys are the members in the order of Key.Compare. Callers must not change the list.
func (o *Origins) Keys() []Key {
	if o == nil {
		return nil
	}
	return o.keys
}

// Has reports whether an object is a member.
func (o *Origins) Has(k Key) bool {
	_, found := slices.BinarySearchFunc(o.Keys(), k, Key.Compare)
	return found
}

// Len is the number of members.
func (o *Origins) Len() int { return len(o.Keys()) }

// Union is the set of the members of both.
func (o *Origins) Union(p *Origins) *Origins {
	switch {
	case o == p || p == nil:
		return o
	case o == nil:
		return p
	}
	return OriginsOf(slices.Concat(o.keys, p.keys)...)
}

// Intersect is the set of the members that both have.
func (o *Origins) Intersect(p *Origins) *Origins {
	if o == p {
		return o
	}
	return OriginsOf(slices.DeleteFunc(slices.Clone(o.Keys()), func(k Key) bool { return !p.Has(k) })...)
}

// Equal reports whether two sets have the same members.
func (o *Origins) Equal(p *Origins) bool { return o == p || slices.Equal(o.Keys(), p.Keys()) }

// originSets are the sets in use. It holds them weakly, as package unique does.
var originSets = &originInterner{known: map[uint64]weak.Pointer[Origins]{}}

type originInterner struct {
	mu    sync.Mutex // guards what follows
	known map[uint64]weak.Pointer[Origins]
	puts  int // since the last sweep
}

var originSeed = maphash.MakeSeed()

// intern gives the one set of keys that are in order. Two sets of one hash, which do not happen,
// would only not be shared.
func (in *originInterner) intern(keys []Key) *Origins {
	var h maphash.Hash
	h.SetSeed(originSeed)
	for i := range keys {
		maphash.WriteComparable(&h, keys[i])
	}
	sum := h.Sum64()
	in.mu.Lock()
	defer in.mu.Unlock()
	if old := in.known[sum].Value(); old != nil && slices.Equal(old.keys, keys) {
		return old
	}
	o := &Origins{keys: slices.Clone(keys)}
	in.known[sum] = weak.Make(o)
	if in.puts++; in.puts > len(in.known)/2+1024 {
		in.sweep()
	}
	return o
}

// sweep drops the sets that nothing uses any more.
func (in *originInterner) sweep() {
	in.puts = 0
	for sum, p := range in.known {
		if p.Value() == nil {
			delete(in.known, sum)
		}
	}
}

// OriginList collects origins in the order in which they are read. The zero value is empty.
type OriginList struct {
	keys  []Key
	floor int // the last mark: what was added before may have to be added again
}

// recentOrigins is how many members Add looks through for one that is there already. A unit reads
// one object many times in a row; a member that is there twice costs no more than its place.
const recentOrigins = 8

// Add adds an object.
func (l *OriginList) Add(k Key) {
	for i := len(l.keys) - 1; i >= max(l.floor, len(l.keys)-recentOrigins); i-- {
		if l.keys[i] == k {
			return
		}
	}
	l.keys = append(l.keys, k)
}

// AddAll adds the members of a set.
func (l *OriginList) AddAll(o *Origins) {
	for _, k := range o.Keys() {
		l.Add(k)
	}
}

// Mark begins a part of the list. Parts may be nested.
func (l *OriginList) Mark() int {
	l.floor = len(l.keys)
	return l.floor
}

// Drop drops what was added since a mark.
func (l *OriginList) Drop(mark int) {
	l.keys, l.floor = l.keys[:mark], min(l.floor, mark)
}

// Since is what was added since a mark; since 0 it is everything. The list stays as it is.
func (l *OriginList) Since(mark int) *Origins { return OriginsOf(l.keys[mark:]...) }

// IsOrigin reports whether the object is recorded as an origin of what is made from it.
func (k Key) IsOrigin() bool {
	return !k.IsMeshConfig() && !slices.Contains(unrecorded, k.Kind)
}

var unrecorded = []Kind{KindPod, KindNode, KindNamespace, KindDrainNotice, KindKeySet}
