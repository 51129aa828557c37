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
	"github.com/moonsail/moonsail/internal/pipeline/store"
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
	Decoder config.Decoder
	Intake  Intake
	Log     *slog.Logger

	problems atomic.Pointer[problem.List] // written by Run, read by anybody
	waiting  atomic.Pointer[error]        // likewise

	// All below belong to Run.
	watcher *fsnotify.Watcher
	catalog *catalog
	files   map[string]seen              // as they were applied
	dirs    map[string]os.FileInfo       // that are watched
	doubts  map[string]*doubt            // files to look at again
	broken  map[string]problem.Problem   // paths that cannot be read or watched
	unseen  map[string]struct{}          // of these, directories that cannot be looked into
	loading bool                         // the first scan: nothing is in force that could be lost
	held    map[string]struct{}          // paths that may hide policies; nil: all have been read, and Synced was said
	gone    bool                         // the directory itself is missing
	shown   map[problem.Problem]struct{} // what the log has told
}

// Problems is what is wrong now, sorted.
func (s *Source) Problems() []problem.Problem {
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
	s.begin(w)
	s.loading, s.held = true, map[string]struct{}{}
	s.scan(s.Dir, time.Now())
	s.loading = false
	s.release()
	return s.follow(ctx, failed)
}

// begin is with nothing known yet.
func (s *Source) begin(w *fsnotify.Watcher) {
	s.watcher, s.catalog = w, newCatalog()
	s.files, s.dirs, s.doubts = map[string]seen{}, map[string]os.FileInfo{}, map[string]*doubt{}
	s.broken, s.shown = map[string]problem.Problem{}, map[problem.Problem]struct{}{}
	s.unseen = map[string]struct{}{}
	s.watchLink()
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
			s.readAgain(time.Now())
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

// below reports whether path is inside of dir; both are absolute, or neither is.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// report publishes the problems, and logs those that are new.
func (s *Source) report() {
	all := s.catalog.problems()
	for _, p := range s.broken {
		all = append(all, p)
	}
	all = append(all, s.heldProblems()...)
	all.Sort()
	list := []problem.Problem(all)
	old := s.problems.Swap((*problem.List)(&list))
	if old != nil && slices.Equal(*old, all) {
		return
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
