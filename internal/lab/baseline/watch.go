package baseline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Extension is the extension of the files that the baseline reads.
const Extension = ".pb"

// watch calls changed with the files that changed together, until ctx ends. It returns when the directory is watched;
// wait returns when the watch has ended.
func watch(ctx context.Context, dir string, changed func(paths []string)) (wait func() error, err error) {
	w, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watching %s: %w", dir, err), w.Close())
	}
	end := make(chan error, 1)
	go func() {
		err := follow(ctx, w, dir, changed)
		end <- errors.Join(err, w.Close())
	}()
	return func() error { return <-end }, nil
}

// follow treats all files as changed if the kernel dropped events.
func follow(ctx context.Context, w *fsnotify.Watcher, dir string, changed func([]string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			paths, err := filepath.Glob(filepath.Join(dir, "*"+Extension))
			if err != nil {
				return err
			}
			changed(paths)
		case e, ok := <-w.Events:
			if !ok {
				return errors.New("the file watcher has closed")
			}
			changed(drain(w, e))
		}
	}
}

// drain collects the pending events, each file once.
func drain(w *fsnotify.Watcher, e fsnotify.Event) []string {
	paths, seen := []string{e.Name}, map[string]bool{e.Name: true}
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return paths
			}
			if !seen[e.Name] {
				seen[e.Name] = true
				paths = append(paths, e.Name)
			}
		default:
			return paths
		}
	}
}
