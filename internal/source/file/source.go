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

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// SourceName is the source's name in the intake.
const SourceName = "file"

// Intake receives events: *store.Intake.
type Intake interface {
	Put(events ...store.Event)
	Synced(source string)
}

// Source watches a directory tree. Its exported fields are set before Run.
type Source struct {
	Dir     string
	Decoder config.Decoder
	Intake  Intake
	Log     *slog.Logger

	// Run writes these; they are safe to read anywhere.
	problems   atomic.Pointer[problem.List]
	unreadable atomic.Pointer[map[model.Key]problem.Problem] // why the newest version of an object in force cannot be read
	waiting    atomic.Pointer[error]

	// The fields below are used by Run only.
	watcher *fsnotify.Watcher
	catalog *catalog
	files   map[string]seen              // when they were applied
	dirs    map[string]os.FileInfo       // watched ones
	doubts  map[string]*doubt            // files to read again
	broken  map[string]problem.Problem   // paths that cannot be read or watched
	unseen  map[string]struct{}          // of these, directories that cannot be read
	loading bool                         // the first scan: nothing in force can be lost
	held    map[string]struct{}          // paths that may hide policies; nil: all were read, and Synced was reported
	gone    bool                         // the directory does not exist
	shown   map[problem.Problem]struct{} // what was logged
}

// Problems returns the present problems, sorted.
func (s *Source) Problems() []problem.Problem {
	if p := s.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Run loads the directory, reports Synced when all policies were read, and follows changes until ctx ends. It returns
// an error only if it cannot start.
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
	defer func() { _ = w.Close() }() // ends the forwarding
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.begin(w)
	s.loading, s.held = true, map[string]struct{}{}
	s.scan(s.Dir, time.Now())
	s.loading = false
	s.scan(s.Dir, time.Now()) // what changed during the first scan, which may take seconds: nothing older is served
	return s.follow(ctx, failed)
}

// begin resets the state.
func (s *Source) begin(w *fsnotify.Watcher) {
	s.watcher, s.catalog = w, newCatalog()
	s.files, s.dirs, s.doubts = map[string]seen{}, map[string]os.FileInfo{}, map[string]*doubt{}
	s.broken, s.shown = map[string]problem.Problem{}, map[problem.Problem]struct{}{}
	s.unseen = map[string]struct{}{}
	s.watchLink()
}

// forward passes errors on, and drops new ones while one waits. The watcher holds its lock while it sends an error: if
// Run received them, adding a watch could block forever.
func forward(from <-chan error, to chan<- error) {
	for err := range from {
		select {
		case to <- err:
		default:
		}
	}
}

// watchLink watches for a new target of the directory, if it is a link.
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
			s.readAgain(time.Now())
		case <-timer.C:
			s.look(time.Now())
		}
	}
}

// drain takes the waiting events, so that files that were written together are applied together. It does not wait.
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
	causeScan  cause = iota // it was found; not read again if it looks the same
	causeEvent              // an event
	causeMoved              // it was moved away
)

// handle determines the files and directories of events, and reads them.
func (s *Source) handle(events []fsnotify.Event, now time.Time) {
	paths := map[string]cause{}
	for _, e := range events {
		name := filepath.Clean(e.Name)
		switch {
		case name == filepath.Clean(s.Dir) || s.dirs[name] != nil:
			s.addTree(paths, s.Dir) // a directory has moved away; its files may be anywhere
		case !below(s.Dir, name):
		case strings.HasPrefix(filepath.Base(name), ".."):
			s.addTree(paths, filepath.Dir(name)) // a ConfigMap's data has changed
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

// below reports whether path is inside of dir. Both are absolute, or neither.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// report publishes the problems, and logs solved and new ones, so that the log ends with what is wrong at present.
func (s *Source) report() {
	all := s.catalog.problems()
	for _, p := range s.broken {
		all = append(all, p)
	}
	all = append(all, s.heldProblems()...)
	all.Sort()
	list := []problem.Problem(all)
	s.unreadable.Store(new(s.unread()))
	old := s.problems.Swap((*problem.List)(&list))
	if old != nil && slices.Equal(*old, all) {
		return
	}
	if old != nil {
		for _, p := range old.Solved(all) {
			s.Log.Info("configuration problem solved", p.Attrs()...)
		}
	}
	shown := make(map[problem.Problem]struct{}, len(all))
	for _, p := range all {
		shown[p] = struct{}{}
		if _, ok := s.shown[p]; !ok {
			s.Log.Log(context.Background(), p.Severity.LogLevel(), "configuration problem", p.Attrs()...)
		}
	}
	s.shown = shown
}
