package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/store"
)

// SourceName is how this source is known to the intake.
const SourceName = "file"

// Intake is where events go; *store.Intake is one.
type Intake interface {
	Put(events ...store.Event)
	Synced(source string)
}

// Source watches a directory tree. Its exported fields are set before Run.
type Source struct {
	Dir     string
	Decoder istioapi.Decoder
	Intake  Intake
	Log     *slog.Logger

	problems atomic.Pointer[istioapi.Problems] // written by Run, read by anybody
	waiting  atomic.Pointer[error]             // likewise

	// All below belong to Run.
	watcher *fsnotify.Watcher
	catalog *catalog
	files   map[string]seen               // as they were applied
	dirs    map[string]os.FileInfo        // that are watched
	doubts  map[string]*doubt             // files to look at again
	broken  map[string]istioapi.Problem   // paths that cannot be read or watched
	unseen  map[string]struct{}           // of these, directories that cannot be looked into
	loading bool                          // the first scan: nothing is in force that could be lost
	held    map[string]struct{}           // paths that may hide policies; nil: all have been read, and Synced was said
	gone    bool                          // the directory itself is missing
	shown   map[istioapi.Problem]struct{} // what the log has told
}

// Problems is what is wrong now, sorted.
func (s *Source) Problems() []istioapi.Problem {
	if p := s.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Run loads the directory, says Synced once all policies are read, and follows its changes
// until ctx ends. It fails only where it cannot start.
func (s *Source) Run(ctx context.Context) error {
	if info, err := os.Stat(s.Dir); err != nil {
		return fmt.Errorf("configuration directory: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("configuration directory: %s is not a directory", s.Dir)
	}
	w, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.Dir, err)
	}
	failed := make(chan error, 1)
	var forwarding sync.WaitGroup
	forwarding.Go(func() { forward(w.Errors, failed) })
	defer forwarding.Wait()
	defer func() { _ = w.Close() }() // it ends the forwarding, and has nothing left to lose
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.watcher, s.catalog = w, newCatalog()
	s.files, s.dirs, s.doubts = map[string]seen{}, map[string]os.FileInfo{}, map[string]*doubt{}
	s.broken, s.shown = map[string]istioapi.Problem{}, map[istioapi.Problem]struct{}{}
	s.unseen = map[string]struct{}{}
	s.watchLink()
	s.loading, s.held = true, map[string]struct{}{}
	s.scan(s.Dir, time.Now())
	s.loading = false
	s.release()
	return s.follow(ctx, failed)
}

// forward passes errors on, the newest lost while one waits. The watcher holds its lock
// while it tells an error: were they read by Run, adding a watch could block for ever.
func forward(from <-chan error, to chan<- error) {
	for err := range from {
		select {
		case to <- err:
		default:
		}
	}
}

// watchLink watches for the directory to be swapped, where it is a link.
func (s *Source) watchLink() {
	if info, err := os.Lstat(s.Dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		s.watch(filepath.Dir(filepath.Clean(s.Dir)))
	}
}

func (s *Source) follow(ctx context.Context, failed <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.untilDue())
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-s.watcher.Events:
			if !ok {
				return errors.New("the file watcher has closed")
			}
			s.handle(s.drain(e), time.Now())
		case err := <-failed:
			s.Log.Warn("file watcher failed; reading everything again", "error", err)
			s.scan(s.Dir, time.Now())
		case <-timer.C:
			s.look(time.Now())
		}
	}
}

// drain takes the events that are already there, so that what was written together is
// applied together. It does not wait.
func (s *Source) drain(first fsnotify.Event) []fsnotify.Event {
	events := []fsnotify.Event{first}
	for {
		select {
		case e, ok := <-s.watcher.Events:
			if !ok {
				return events
			}
			events = append(events, e)
		default:
			return events
		}
	}
}

// cause is why a file is read.
type cause uint8

const (
	causeScan  cause = iota // it was found; not read again where it looks the same
	causeEvent              // something happened to it
	causeMoved              // it was moved away
)

// handle finds out which files and directories events are about, and reads those.
func (s *Source) handle(events []fsnotify.Event, now time.Time) {
	paths := map[string]cause{}
	for _, e := range events {
		name := filepath.Clean(e.Name)
		switch {
		case name == filepath.Clean(s.Dir) || s.dirs[name] != nil:
			s.addTree(paths, s.Dir) // a directory that was there has moved: it may be anywhere now
		case !below(s.Dir, name):
		case strings.HasPrefix(filepath.Base(name), ".."):
			s.addTree(paths, filepath.Dir(name)) // a ConfigMap's data was swapped
		case s.isDir(name):
			s.addTree(paths, name)
		case isConfig(name) && e.Has(fsnotify.Rename):
			paths[name] = causeMoved
		case isConfig(name):
			paths[name] = causeEvent
		}
	}
	s.apply(paths, now)
}

// below tells whether path is inside of dir; both are absolute, or neither is.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// isDir tells whether name is a directory, or was one that had files, or could not be looked into.
func (s *Source) isDir(name string) bool {
	if info, err := os.Stat(name); err == nil {
		return info.IsDir() && !strings.HasPrefix(filepath.Base(name), ".")
	}
	if isConfig(name) {
		return false
	}
	was := func(path string) bool { return path == name || below(name, path) }
	return anyKey(s.files, was) || anyKey(s.unseen, was)
}

func anyKey[T any](m map[string]T, is func(string) bool) bool {
	for k := range m {
		if is(k) {
			return true
		}
	}
	return false
}

// scan reads a whole tree.
func (s *Source) scan(dir string, now time.Time) {
	paths := map[string]cause{}
	s.addTree(paths, dir)
	s.apply(paths, now)
}

// addTree adds all files that are below dir, or were. Directories are watched before
// they are listed: whatever appears in between is seen at least once.
func (s *Source) addTree(paths map[string]cause, dir string) {
	dir = filepath.Clean(dir)
	s.forget(dir)
	l := list(dir)
	for _, d := range l.dirs {
		s.watch(d)
	}
	l = list(dir)
	for _, f := range l.files {
		paths[f] = max(paths[f], causeScan)
	}
	if dir == filepath.Clean(s.Dir) {
		if s.gone = len(l.dirs) == 0; s.gone {
			s.broken[dir] = stays(ioProblem(dir, errors.New("the directory is missing; put it back")))
			return // nothing goes out of force because a mount is away
		}
	}
	s.noteErrors(dir, l.errs)
	for path := range s.files {
		addUnlisted(paths, dir, path)
	}
	for path := range s.broken { // of files that never were read, too
		if isConfig(path) {
			addUnlisted(paths, dir, path)
		}
	}
}

// addUnlisted adds a file of dir that may be gone.
func addUnlisted(paths map[string]cause, dir, path string) {
	if _, listed := paths[path]; !listed && below(dir, path) {
		paths[path] = causeScan
	}
}

// noteErrors tells of what cannot be looked into, in place of what was so at dir and below it. Nothing
// that is there is known, unless it was looked into before.
func (s *Source) noteErrors(dir string, errs map[string]error) {
	delete(s.broken, dir)
	for path := range s.unseen {
		if path == dir || below(dir, path) {
			delete(s.unseen, path)
			delete(s.broken, path)
			s.hold(path, false)
		}
	}
	for path, err := range errs {
		s.unseen[path], s.broken[path] = struct{}{}, stays(ioProblem(path, err))
		s.hold(path, s.dirs[path] == nil)
	}
}

// forget ends the watches of directories that are gone, or whose names others have
// taken. The watcher would go on telling of them under their old names.
func (s *Source) forget(dir string) {
	for d, old := range s.dirs {
		if d != dir && !below(dir, d) {
			continue
		}
		if info, err := os.Stat(d); err != nil || !os.SameFile(old, info) {
			_ = s.watcher.Remove(d) // it may have ended by itself
			delete(s.dirs, d)
			delete(s.broken, d+"/")
		}
	}
}

func (s *Source) watch(dir string) {
	info, err := os.Stat(dir)
	if err != nil {
		return
	}
	if err := s.watcher.Add(dir); err != nil {
		s.broken[dir+"/"] = istioapi.Problem{
			Severity: istioapi.SeverityError, File: dir,
			Message: fmt.Sprintf("cannot be watched, so changes are not seen: %v; raise fs.inotify.max_user_watches, or restart after changes", err),
		}
		return
	}
	s.dirs[dir] = info
	delete(s.broken, dir+"/")
}

// report publishes the problems, and logs those that are new.
func (s *Source) report() {
	all := s.catalog.problems()
	for _, p := range s.broken {
		all = append(all, p)
	}
	all = append(all, s.heldProblems()...)
	all.Sort()
	list := []istioapi.Problem(all)
	old := s.problems.Swap((*istioapi.Problems)(&list))
	if old != nil && slices.Equal(*old, all) {
		return
	}
	shown := make(map[istioapi.Problem]struct{}, len(all))
	for _, p := range all {
		shown[p] = struct{}{}
		if _, ok := s.shown[p]; !ok {
			s.Log.Log(context.Background(), p.Severity.LogLevel(), "configuration problem",
				"where", p.Where(), "object", p.Object.String(), "field", p.Field, "problem", p.Message)
		}
	}
	s.shown = shown
}
