package sds

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollEvery is how often files are looked at where no event told of them: folders that are not there cannot
	// be watched, and some file systems tell nothing.
	pollEvery = 2 * time.Second
	// settleFor is how long after the first event files are read: a certificate and its key are seldom written at once.
	settleFor = 100 * time.Millisecond
)

// Run reads files, and reads them again when they change, until ctx ends. It is to be called once.
func (f *Files) Run(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("files with certificates are not watched, but looked at now and then", "every", f.poll, "error", err)
		w = &fsnotify.Watcher{} // tells nothing
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
			f.log.Warn("not all changes of files with certificates were told", "error", err)
		case <-settled.C:
			waiting = false
		}
		f.look(w, touched)
		clear(touched)
	}
}

// look reads the files that are others, or that were touched, and watches where they are.
func (f *Files) look(w *fsnotify.Watcher, touched map[string]bool) {
	names, of := f.names()
	var folders []string
	for _, name := range names {
		folders = append(folders, foldersOf(pathsOf(of[name]))...)
	}
	if w.Events != nil {
		watch(w, folders) // before they are read: what changes then is told
	}
	for _, name := range names {
		paths := pathsOf(of[name])
		stamps := stampsOf(paths)
		if f.same(name, stamps) && !slices.ContainsFunc(paths, func(p string) bool { return touched[filepath.Clean(p)] }) {
			continue
		}
		read, err := readSecret(name, of[name])
		f.note(name, stamps, read, err)
	}
}

// foldersOf are where files are, and where links lead: Kubernetes replaces the link "..data" beside a file.
func foldersOf(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, filepath.Dir(p))
		if real, err := filepath.EvalSymlinks(p); err == nil {
			out = append(out, filepath.Dir(real))
		}
	}
	return out
}

// watch watches folders, those that are there, and no others.
func watch(w *fsnotify.Watcher, folders []string) {
	now := w.WatchList()
	for _, dir := range now {
		if !slices.Contains(folders, dir) {
			_ = w.Remove(dir)
		}
	}
	for _, dir := range folders {
		if !slices.Contains(now, dir) {
			_ = w.Add(dir) // else it is looked at now and then
		}
	}
}
