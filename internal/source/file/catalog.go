package file

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// catalog determines the object in force of each key. It is pure: no I/O, no clock.
type catalog struct {
	files map[string]*fileState
	// claims lists the files with an object, in path order: the first complete one is in force.
	claims map[model.Key][]string
	// contested are the objects in several files, faulty the files with problems.
	contested map[model.Key]bool
	faulty    map[string]bool
	// inForce is the version of each object in the last event.
	inForce map[model.Key]string
}

// fileState is the content of one file.
type fileState struct {
	objects  map[model.Key]model.Object    // the last valid ones
	partial  map[model.Key]bool            // those with a valid part only; no version was valid
	kept     map[model.Key]problem.Problem // those of an earlier content, and what hides whether they are in this one
	problems problem.List
}

func newCatalog() *catalog {
	return &catalog{
		files:     map[string]*fileState{},
		claims:    map[model.Key][]string{},
		contested: map[model.Key]bool{},
		faulty:    map[string]bool{},
		inForce:   map[model.Key]string{},
	}
}

// set applies the content of a file, and returns the resulting events.
func (c *catalog) set(path string, p parsed, now time.Time) []store.Event {
	old := c.files[path]
	if old == nil {
		old = &fileState{}
	}
	next := &fileState{objects: map[model.Key]model.Object{}, partial: map[model.Key]bool{}, kept: map[model.Key]problem.Problem{}}
	for _, d := range p.docs {
		next.problems = append(next.problems, d.problems...)
		if d.object == nil {
			next.keep(d, old)
			continue
		}
		next.take(d)
	}
	next.problems = append(next.problems, p.syntax...)
	if hides := p.hides(); hides != nil {
		for k, o := range old.objects {
			if next.objects[k] == nil {
				next.objects[k], next.partial[k], next.kept[k] = o, old.partial[k], *hides
			}
		}
	}
	return c.replace(path, old, next, now)
}

// keep keeps the last valid version of an object with errors, or uses its valid part.
func (f *fileState) keep(d document, old *fileState) {
	last := old.objects[d.key]
	switch {
	case !d.problems.HasErrors():
	case last != nil && (d.partial == nil || !old.partial[d.key]):
		f.objects[d.key], f.partial[d.key] = last, old.partial[d.key]
	case d.partial != nil && f.objects[d.key] == nil:
		f.objects[d.key], f.partial[d.key] = d.partial.Object, true
		f.problems = append(f.problems, d.partial.Note)
	}
}

// take adds an object of a file, unless the file already has one of its name.
func (f *fileState) take(d document) {
	first := f.objects[d.key]
	if first == nil || f.partial[d.key] {
		f.objects[d.key] = d.object
		delete(f.partial, d.key)
		return
	}
	f.problems = append(f.problems, duplicate(d.key, d.object, first))
}

// remove removes a file.
func (c *catalog) remove(path string, now time.Time) []store.Event {
	old := c.files[path]
	if old == nil {
		return nil
	}
	return c.replace(path, old, nil, now)
}

// replace replaces old by next (nil: nothing), and returns the resulting events.
func (c *catalog) replace(path string, old, next *fileState, now time.Time) []store.Event {
	touched := map[model.Key]bool{}
	for k := range old.objects {
		touched[k] = true
		c.claims[k] = slices.DeleteFunc(c.claims[k], func(p string) bool { return p == path })
	}
	delete(c.files, path)
	delete(c.faulty, path)
	if next != nil {
		c.files[path] = next
		if len(next.problems) > 0 {
			c.faulty[path] = true
		}
		for k := range next.objects {
			touched[k] = true
			i, _ := slices.BinarySearch(c.claims[k], path)
			c.claims[k] = slices.Insert(c.claims[k], i, path)
		}
	}
	var events []store.Event
	for _, k := range slices.SortedFunc(maps.Keys(touched), model.Key.Compare) {
		if e, changed := c.settle(k, now); changed {
			events = append(events, e)
		}
	}
	return events
}

// settle determines the object in force of a key, and whether that is a change.
func (c *catalog) settle(k model.Key, now time.Time) (store.Event, bool) {
	e := store.Event{Key: k, Observed: now}
	if delete(c.contested, k); len(c.claims[k]) > 1 {
		c.contested[k] = true
	}
	version := ""
	if claims := c.claims[k]; len(claims) > 0 {
		e.Object = c.files[c.winner(k)].objects[k]
		version = e.Object.Metadata().ResourceVersion
	} else {
		delete(c.claims, k)
	}
	was, known := c.inForce[k]
	if e.Object == nil {
		delete(c.inForce, k)
		return e, known
	}
	c.inForce[k] = version
	return e, !known || was != version
}

// winner returns the file whose object is in force: the first with a complete one, else the first.
func (c *catalog) winner(k model.Key) string {
	claims := c.claims[k]
	for _, path := range claims {
		if !c.files[path].partial[k] {
			return path
		}
	}
	return claims[0]
}

// isPartial reports whether only the valid part of an object is in force.
func (c *catalog) isPartial(k model.Key) bool { return c.files[c.winner(k)].partial[k] }

// problems returns all problems, sorted.
func (c *catalog) problems() problem.List {
	var out problem.List
	for path := range c.faulty {
		out = append(out, c.files[path].problems...)
	}
	for k := range c.contested {
		winner := c.winner(k)
		for _, path := range c.claims[k] {
			if path != winner {
				out = append(out, duplicate(k, c.files[path].objects[k], c.files[winner].objects[k]))
			}
		}
	}
	out.Sort()
	return out
}

// objects returns the objects in force, in key order.
func (c *catalog) objects() []model.Object {
	out := make([]model.Object, 0, len(c.claims))
	for k, claims := range c.claims {
		if len(claims) > 0 {
			out = append(out, c.files[c.winner(k)].objects[k])
		}
	}
	slices.SortFunc(out, func(a, b model.Object) int { return a.Metadata().Key.Compare(b.Metadata().Key) })
	return out
}

// duplicate reports that other is in force instead of o.
func duplicate(k model.Key, o, other model.Object) problem.Problem {
	file, line := splitOrigin(o.Metadata().Origin)
	return problem.Problem{
		Severity: problem.SeverityError, Code: code.DefinedTwice, Object: k, File: file, Line: line,
		Message: fmt.Sprintf("is already defined at %s, which is in force; remove or rename one of the two",
			other.Metadata().Origin),
	}
}

// splitOrigin splits "file:line".
func splitOrigin(origin string) (file string, line int) {
	for i := len(origin) - 1; i >= 0; i-- {
		if origin[i] == ':' {
			_, _ = fmt.Sscanf(origin[i+1:], "%d", &line)
			return origin[:i], line
		}
	}
	return origin, 0
}
