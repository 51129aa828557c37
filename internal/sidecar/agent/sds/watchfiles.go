package sds

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollEvery is how often files are checked without events. Folders that do not exist cannot be watched, and some
	// file systems send no events.
	pollEvery = 2 * time.Second
	// settleFor is the time between the first event and reading: a certificate and its key are seldom written at once.
	settleFor = 100 * time.Millisecond
)

// Run reads files, and reads them again when they change, until ctx ends. Call it once.
func (f *Files) Run(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("cannot watch files with certificates; they are polled", "every", f.poll, "error", err)
		w = &fsnotify.Watcher{} // no events
	} else {
		defer func() { _ = w.Close() }()
	}
	poll := time.NewTicker(f.poll)
	defer poll.Stop()
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	defer settled.Stop()
	touched, waiting := map[string]bool{}, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.asked:
		case <-poll.C:
		case e := <-w.Events:
			touched[filepath.Clean(e.Name)] = true
			if !waiting {
				settled.Reset(f.settle)
			}
			waiting = true
			continue
		case err := <-w.Errors: // an overflow: events are lost
			f.log.Warn("some changes of files with certificates were not reported; the next poll finds them", "error", err)
		case <-settled.C:
			waiting = false
		}
		f.look(w, touched)
		clear(touched)
	}
}

// look reads the files that have changed or had an event, and watches their folders.
func (f *Files) look(w *fsnotify.Watcher, touched map[string]bool) {
	names, of := f.names()
	var folders []string
	for _, name := range names {
		folders = append(folders, foldersOf(pathsOf(of[name]))...)
	}
	if w.Events != nil {
		watch(w, folders) // before reading, so that later changes are reported
	}
	for _, name := range names {
		paths := pathsOf(of[name])
		stamps := stampsOf(paths)
		if f.same(name, stamps) && !slices.ContainsFunc(paths, func(p string) bool { return touched[filepath.Clean(p)] }) {
			continue
		}
		read, leftOut, err := readSecret(name, of[name])
		f.note(name, stamps, read, leftOut, err)
	}
}

// foldersOf returns the folders of files, and of the targets of links: Kubernetes replaces the link "..data" beside a
// file.
func foldersOf(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, filepath.Dir(p))
		if real, err := filepath.EvalSymlinks(p); err == nil {
			out = append(out, filepath.Dir(real))
		}
	}
	return out
}

// watch watches the folders that exist, and no others.
func watch(w *fsnotify.Watcher, folders []string) {
	now := w.WatchList()
	for _, dir := range now {
		if !slices.Contains(folders, dir) {
			_ = w.Remove(dir)
		}
	}
	for _, dir := range folders {
		if !slices.Contains(now, dir) {
			_ = w.Add(dir) // otherwise polling covers it
		}
	}
}
