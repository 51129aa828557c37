package file

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// A file that looks unfinished is read again after recheck, until two reads are equal. A writer may just have emptied, cut
// off or moved away such a file to write it again. Only a later change distinguishes it from a finished one.
const (
	recheck     = 20 * time.Millisecond
	maxRechecks = 50 // of one file that changes each time
	rescanRoot  = 500 * time.Millisecond
)

// seen is the state of a file when it was applied.
type seen struct {
	sum  uint64
	info os.FileInfo
}

// unchanged reports whether a file looks the same. A write in place may not change that, but always causes an event.
func (s seen) unchanged(path string) bool {
	info, err := os.Stat(path)
	return err == nil && os.SameFile(info, s.info) && info.Size() == s.info.Size() && info.ModTime().Equal(s.info.ModTime())
}

// doubt is a file that looked unfinished.
type doubt struct {
	sum   uint64
	tries int
	due   time.Time
}

// apply reads files, and applies all changes at once.
func (s *Source) apply(paths map[string]cause, now time.Time) {
	var events []store.Event
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		events = append(events, s.load(path, paths[path], now)...)
	}
	s.Intake.Put(events...)
	s.report()
	s.release()
}

// load reads one file and returns the events, unless it looks unfinished.
func (s *Source) load(path string, why cause, now time.Time) []store.Event {
	old, known := s.files[path]
	if known && why == causeScan && s.doubts[path] == nil && old.unchanged(path) {
		return nil
	}
	data, info, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.missing(path, known && why == causeMoved, now)
	case err != nil:
		delete(s.doubts, path) // an event follows when it can be read
		s.broken[path] = stays(ioProblem(path, err))
		s.hold(path, !known)
		return nil
	}
	delete(s.broken, path)
	next := seen{xxhash.Sum64(data), info}
	if known && old.sum == next.sum {
		delete(s.doubts, path)
		s.files[path] = next
		return nil
	}
	return s.take(path, data, next, now)
}

// missing removes a file that is gone. A file that was moved away may be written again soon.
func (s *Source) missing(path string, moved bool, now time.Time) []store.Event {
	delete(s.broken, path)
	if moved && s.doubtful(path, 0, now) {
		return nil
	}
	delete(s.doubts, path)
	delete(s.files, path)
	s.hold(path, false)
	return s.catalog.remove(path, now)
}

// take applies the content of a file, unless it looks unfinished.
func (s *Source) take(path string, data []byte, next seen, now time.Time) []store.Event {
	p := parse(path, data, s.Decoder)
	for i := range p.syntax {
		p.syntax[i] = stays(p.syntax[i])
	}
	old, known := s.files[path]
	inPlace := known && os.SameFile(old.info, next.info)
	if s.unfinished(path, data, p, inPlace) && s.doubtful(path, next.sum, now) {
		return nil
	}
	delete(s.doubts, path)
	s.files[path] = next
	s.hold(path, p.hidden)
	return s.catalog.set(path, p, now)
}

// stays adds the consequence to a problem of a whole file whose earlier content may be in force.
func stays(p problem.Problem) problem.Problem {
	p.Message += "; its previous objects stay in force"
	return p
}

// unfinished reports whether a file looks as if it were being written: it is cut off, or a write in place removed objects.
// A file that was renamed into its place is complete.
func (s *Source) unfinished(path string, data []byte, p parsed, inPlace bool) bool {
	if s.loading {
		return false
	}
	if len(p.syntax) > 0 {
		return true
	}
	old := s.catalog.files[path]
	if old == nil || len(old.objects) == 0 || p.nameless != nil {
		return false // there is nothing to lose
	}
	if !ended(data) {
		return true
	}
	has := map[model.Key]bool{}
	for _, d := range p.docs {
		has[d.key] = true
	}
	for k := range old.objects {
		if inPlace && !has[k] {
			return true
		}
	}
	return false
}

// ended reports whether content ends like a complete file: with a line break or a bracket.
func ended(data []byte) bool {
	return len(data) > 0 && bytes.IndexByte([]byte("\n}]"), data[len(data)-1]) >= 0
}

// doubtful reports whether to read a file again before it is applied: not if the last read found the same, or after too
// many reads.
func (s *Source) doubtful(path string, sum uint64, now time.Time) bool {
	d := s.doubts[path]
	if d == nil {
		s.doubts[path] = &doubt{sum: sum, due: now.Add(recheck)}
		return true
	}
	if d.tries++; d.tries > maxRechecks || d.sum == sum && !now.Before(d.due) {
		return false
	}
	if d.sum != sum {
		d.sum, d.due = sum, now.Add(recheck)
	}
	return true
}

// untilDue returns the time until a file must be read again.
func (s *Source) untilDue() time.Duration {
	if s.gone {
		return rescanRoot
	}
	wait := time.Hour
	for _, d := range s.doubts {
		wait = min(wait, max(0, time.Until(d.due)))
	}
	return wait
}

// look reads the doubtful files again.
func (s *Source) look(now time.Time) {
	if s.gone {
		s.scan(s.Dir, now)
		return
	}
	paths := map[string]cause{}
	for path, d := range s.doubts {
		if !now.Before(d.due) {
			paths[path] = causeEvent
		}
	}
	if len(paths) > 0 {
		s.apply(paths, now)
	}
}
