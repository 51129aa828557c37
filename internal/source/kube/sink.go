package kube

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// sink stores the objects of one kind for a Reflector. It keeps the model's objects, which the store shares, and
// nothing of Kubernetes' objects. It is a cache.ReflectorStore and a cache.TransformingStore.
type sink struct {
	resource *resource
	decoder  config.Decoder
	pool     *pool // used by the Reflector only
	put      func(events ...store.Event)
	meter    Meter
	listed   func() // called after each complete list
	problem  func(problemNews)
	observer Observer // nil: none

	mu sync.Mutex // guards the fields below: the Reflector writes, Problems reads
	// held are the present objects, by namespace and name.
	held map[types.NamespacedName]held
	// problems are those of objects with problems.
	problems map[types.NamespacedName]problem.List
	untold   problemNews // not logged yet
}

// held is the stored state of an object.
type held struct {
	version string       // the last version
	written int64        // the newest time of all versions, in Unix seconds
	object  model.Object // in force; an earlier version's if the last one has errors; nil: none was valid
	partial bool         // object is the valid part of a version with errors, because no version was valid
}

func newSink(r *resource, s *Source) *sink {
	k := &sink{
		resource: r, decoder: complete(s.Decoder), pool: newPool(), put: s.Intake.Put, meter: s.Meter,
		listed: func() { s.status.listed(r.title()) }, problem: s.log.problems,
		held: map[types.NamespacedName]held{}, problems: map[types.NamespacedName]problem.List{},
	}
	if r.observed() {
		k.observer = s.Observer
	}
	return k
}

// Events, with names of Istio's metrics.
const (
	eventAdd    = "add"
	eventUpdate = "update"
	eventDelete = "delete"
	eventSame   = "updatesame" // without effect on the mesh
)

// Add implements cache.ReflectorStore.
func (k *sink) Add(o any) error { return k.upsert(o, time.Now()) }

// Update implements cache.ReflectorStore.
func (k *sink) Update(o any) error { return k.upsert(o, time.Now()) }

func (k *sink) upsert(o any, now time.Time) error {
	e, err := k.decode(o)
	if err != nil {
		return err
	}
	k.mu.Lock()
	written := k.fresh(e)
	event, ok := k.take(e, now)
	news := k.news()
	k.mu.Unlock()
	k.problem(news)
	if !written.IsZero() {
		k.meter.APIDelay(DelayObject, now.Sub(written))
		event.Committed = written
	}
	if ok {
		k.put(event)
	}
	k.observe(e)
	return nil
}

// take stores an object. It returns the event if something changes. mu is held.
func (k *sink) take(e *entry, now time.Time) (store.Event, bool) {
	old, known := k.held[e.name]
	if known && old.version == e.version {
		return store.Event{}, false
	}
	if e.partial != nil && (old.object == nil || old.partial) {
		e = e.inPart()
	}
	k.note(e)
	written, partial := max(old.written, e.committed.Unix()), e.partial != nil
	if e.object == nil {
		partial = old.partial
	}
	switch {
	case e.object == nil && old.object != nil && !e.problems.HasErrors():
		event, ok := k.drop(e.name, now) // it has no effect on the mesh any more
		k.held[e.name] = held{version: e.version, written: written}
		return event, ok
	case e.object == nil || old.object != nil && same(old.object, e.object):
		k.held[e.name] = held{e.version, written, old.object, partial}
		k.count(eventSame)
		return store.Event{}, false
	}
	k.held[e.name] = held{e.version, written, e.object, partial}
	if old.object == nil {
		k.count(eventAdd)
	} else {
		k.count(eventUpdate)
		if m := e.object.Metadata(); m.ResourceVersion == old.object.Metadata().ResourceVersion {
			m.ResourceVersion += "/" + k.resource.version // decoded from another version of its kind: for the store it has changed
		}
	}
	return store.Event{
		Key: e.object.Metadata().Key, Object: e.object, Observed: now, Urgent: store.RemovesEndpoints(old.object, e.object),
	}, true
}

func (k *sink) count(event string) { k.meter.Event(k.resource.event(), k.resource.Custom, event) }

func (r *resource) event() string {
	if r.metric != "" {
		return r.metric
	}
	return r.Kind
}

// note stores an object's problems. mu is held.
func (k *sink) note(e *entry) {
	if !slices.Equal(k.problems[e.name], e.problems) {
		k.untold.found = append(k.untold.found, e.problems...)
		k.solved(e.name, e.problems)
	}
	delete(k.problems, e.name)
	if len(e.problems) > 0 {
		k.problems[e.name] = e.problems
	}
}

// solved notes the problems of an object that a later list lacks. mu is held.
func (k *sink) solved(n types.NamespacedName, later problem.List) {
	k.untold.solved = append(k.untold.solved, k.problems[n].Solved(later)...)
}

// news returns the changes of problems that were not logged yet. mu is held.
func (k *sink) news() problemNews {
	news := k.untold
	k.untold = problemNews{}
	return news
}

// same reports whether two versions of an object are equal for the mesh: they differ in the status, an unread field, or
// managedFields. b is not shared yet.
func same(a, b model.Object) bool {
	m := b.Metadata()
	version := m.ResourceVersion
	m.ResourceVersion = a.Metadata().ResourceVersion
	equal := reflect.DeepEqual(a, b)
	m.ResourceVersion = version
	return equal
}

// Delete implements cache.ReflectorStore.
func (k *sink) Delete(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	k.mu.Lock()
	event, ok := k.drop(nameOf(m), time.Now())
	news := k.news()
	k.mu.Unlock()
	k.problem(news)
	if ok {
		k.put(event)
	}
	k.lost(nameOf(m))
	return nil
}

// become changes to another version of the kind, while no Reflector runs. Objects may have other fields in it, so each
// is decoded again.
func (k *sink) become(r *resource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resource = r
	for n, h := range k.held {
		h.version = ""
		k.held[n] = h
	}
}

// drop removes an object. It returns the event if something changes. mu is held.
func (k *sink) drop(n types.NamespacedName, now time.Time) (store.Event, bool) {
	old := k.held[n]
	delete(k.held, n)
	k.solved(n, nil)
	delete(k.problems, n)
	if old.object == nil {
		return store.Event{}, false
	}
	k.count(eventDelete)
	return store.Event{Key: old.object.Metadata().Key, Observed: now, Urgent: store.RemovesEndpoints(old.object, nil)}, true
}

// Replace implements cache.ReflectorStore. It removes objects that are not in the list. All changes are one Put.
func (k *sink) Replace(list []any, _ string) error {
	now := time.Now()
	entries := make([]*entry, 0, len(list))
	for _, o := range list {
		e, err := k.decode(o)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	events, gone, news := k.replace(entries, now)
	k.put(events...)
	k.problem(news)
	for _, e := range entries {
		k.observe(e)
	}
	k.lost(gone...)
	k.listed()
	return nil
}

func (k *sink) replace(entries []*entry, now time.Time) (events []store.Event, gone []types.NamespacedName, news problemNews) {
	k.mu.Lock()
	defer k.mu.Unlock()
	there := make(map[types.NamespacedName]bool, len(entries))
	for _, e := range entries {
		there[e.name] = true
		if event, ok := k.take(e, now); ok {
			events = append(events, event)
		}
	}
	for n := range k.held {
		if there[n] {
			continue
		}
		gone = append(gone, n)
		if event, ok := k.drop(n, now); ok {
			events = append(events, event)
		}
	}
	slices.SortFunc(events, func(a, b store.Event) int { return a.Key.Compare(b.Key) })
	return events, gone, k.news()
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (k *sink) Resync() error { return nil }

// Problems returns the problems of all objects.
func (k *sink) Problems() problem.List {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out problem.List
	for _, list := range k.problems {
		out = append(out, list...)
	}
	return out
}

// problemsOf returns the problems of one object; none if it is of another kind.
func (k *sink) problemsOf(kind model.Kind, n types.NamespacedName) problem.List {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.resource.Model != kind {
		return nil
	}
	return slices.Clone(k.problems[n])
}

// committed returns the newest time in an object, in whole seconds: its creation, a write of a field with a manager, or
// the request for a graceful deletion.
func committed(m metav1.Object) time.Time {
	at := m.GetCreationTimestamp().Time
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	if d := m.GetDeletionTimestamp(); d != nil { // the end of the grace period
		var grace int64
		if g := m.GetDeletionGracePeriodSeconds(); g != nil {
			grace = *g
		}
		if asked := d.Add(-time.Duration(grace) * time.Second); asked.After(at) {
			at = asked
		}
	}
	return at
}

// fresh returns when an entry's version was written; zero if that is unknown, because its newest time is not later than
// one of a version before. mu is held.
func (k *sink) fresh(e *entry) time.Time {
	if old, known := k.held[e.name]; known && e.committed.Unix() <= old.written {
		return time.Time{}
	}
	return e.committed
}
