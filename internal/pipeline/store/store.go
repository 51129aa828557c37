// Package store has the objects of all sources: the intake, through which events arrive (intake.go), and immutable
// tables of objects, numbered by Revision (store.go).
//
// Invariants:
//
//  1. A Snapshot never changes. Neither does an object once it is in the intake.
//  2. One goroutine applies batches. Any goroutine reads the newest snapshot, without a lock.
//  3. The intake has at most one event for each object.
//
// Start reading at Intake.Put, Intake.Take and Store.Apply.
package store

import (
	"iter"
	"slices"
	"sync/atomic"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// Snapshot is all objects at one revision. It never changes.
type Snapshot struct {
	Revision model.Revision
	tables   map[model.Kind]*iradix.Tree[model.Object]
}

// Get returns one object; nil: there is none.
func (s *Snapshot) Get(k model.Key) model.Object {
	t := s.tables[k.Kind]
	if t == nil {
		return nil
	}
	o, _ := t.Get(rowKey(k))
	return o
}

// All yields the objects of a kind in the order of namespace and name.
func (s *Snapshot) All(kind model.Kind) iter.Seq[model.Object] {
	return func(yield func(model.Object) bool) {
		t := s.tables[kind]
		if t == nil {
			return
		}
		it := t.Root().Iterator()
		for _, o, ok := it.Next(); ok; _, o, ok = it.Next() {
			if !yield(o) {
				return
			}
		}
	}
}

// NamespaceLabels returns the labels of a namespace. Without an object they are those that Kubernetes sets.
func (s *Snapshot) NamespaceLabels(name string) map[string]string {
	if ns, ok := s.Get(model.Key{Kind: model.KindNamespace, Name: name}).(*model.Namespace); ok {
		return ns.Labels
	}
	return model.ImpliedLabels(name)
}

// InMesh reports whether the mesh's configuration, in the root namespace, selects a namespace.
func (s *Snapshot) InMesh(namespace, rootNamespace string) bool {
	c, ok := s.Get(model.Key{Kind: model.KindMeshConfig, Namespace: rootNamespace, Name: model.MeshConfigName}).(*model.MeshConfig)
	if !ok || len(c.Discovery) == 0 {
		return true
	}
	labels := s.NamespaceLabels(namespace)
	return slices.ContainsFunc(c.Discovery, func(l model.LabelSelector) bool { return l.Matches(labels) })
}

// Len returns the number of objects of a kind.
func (s *Snapshot) Len(kind model.Kind) int {
	if t := s.tables[kind]; t != nil {
		return t.Len()
	}
	return 0
}

func rowKey(k model.Key) []byte {
	b := make([]byte, 0, len(k.Namespace)+1+len(k.Name))
	b = append(b, k.Namespace...)
	b = append(b, 0)
	return append(b, k.Name...)
}

// Change is the difference that a batch makes for one object. Old is nil for a created object, New for a deleted one.
type Change struct {
	Key      model.Key
	Old, New model.Object
	Event    Event
}

// Store has the newest snapshot. One goroutine calls Apply; any goroutine reads.
type Store struct {
	current atomic.Pointer[Snapshot]
}

// New makes an empty store at revision 1. A cursor at 0 has seen nothing.
func New() *Store {
	s := &Store{}
	s.current.Store(&Snapshot{Revision: 1, tables: map[model.Kind]*iradix.Tree[model.Object]{}})
	return s
}

// Snapshot returns the newest snapshot.
func (s *Store) Snapshot() *Snapshot { return s.current.Load() }

// Apply makes the next revision out of events and returns what differs, in the order of the events. Events without an
// effect (an equal resource version, or the removal of an unknown object) are left out. If no event has an
// effect, there is no new revision.
//
// Only one goroutine may call Apply.
func (s *Store) Apply(events []Event) (*Snapshot, []Change) {
	old := s.current.Load()
	txns := map[model.Kind]*iradix.Txn[model.Object]{}
	changes := make([]Change, 0, len(events))
	for _, e := range events {
		if c, ok := apply(old, txns, e); ok {
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 {
		return old, nil
	}
	next := &Snapshot{Revision: old.Revision + 1, tables: make(map[model.Kind]*iradix.Tree[model.Object], len(old.tables))}
	for k, t := range old.tables {
		next.tables[k] = t
	}
	for k, t := range txns {
		next.tables[k] = t.CommitOnly()
	}
	s.current.Store(next)
	return next, changes
}

func apply(old *Snapshot, txns map[model.Kind]*iradix.Txn[model.Object], e Event) (Change, bool) {
	txn := txns[e.Key.Kind]
	if txn == nil {
		tree := old.tables[e.Key.Kind]
		if tree == nil {
			tree = iradix.New[model.Object]()
		}
		txn = tree.Txn()
		txns[e.Key.Kind] = txn
	}
	key := rowKey(e.Key)
	prev, had := txn.Get(key)
	c := Change{Key: e.Key, New: e.Object, Event: e}
	if had {
		c.Old = prev
	}
	switch {
	case e.Object == nil && !had:
		return c, false
	case e.Object == nil:
		txn.Delete(key)
	case had && sameVersion(prev, e.Object):
		return c, false
	default:
		txn.Insert(key, e.Object)
	}
	return c, true
}

func sameVersion(a, b model.Object) bool {
	v := a.Metadata().ResourceVersion
	return v != "" && v == b.Metadata().ResourceVersion
}
