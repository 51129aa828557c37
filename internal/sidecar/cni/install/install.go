// Package install puts the CNI plugin on a node: the program into the folder of CNI plugins, and an entry as the last
// plugin of the node's network, as istio-cni's installer does. It keeps both there while other programs change these
// folders.
//
// conflist.go edits the configuration of a network, replace.go replaces files, install.go has the life of an installation.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/sidecar/cni"
)

// Installer installs the plugin on one node. Its fields are set before use.
type Installer struct {
	NetDir  string // with networks, /etc/cni/net.d of the node
	BinDir  string // with plugins, /opt/cni/bin of the node
	Network string // name of the file in NetDir; empty: the one that the container runtime uses
	Program string // file of the plugin
	Entry   cni.Entry
	Log     *slog.Logger
	// Checked is called after each check, with the reason why the plugin is not installed; nil if it is.
	Checked func(error)

	problems logonce.Errors
	skipped  logonce.Errors // invalid files
	equal    copies         // when they had the same content
}

// ErrProgram means that the program could not be copied.
var ErrProgram = errors.New("the CNI plugin could not be copied")

// Install puts the program and the entry in place, unless they are there. It returns the changed files.
func (i *Installer) Install() (changed []string, err error) {
	copied, err := i.copyProgram()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProgram, err)
	}
	if copied {
		changed = append(changed, filepath.Join(i.BinDir, cni.PluginName))
	}
	file, skipped, err := choose(i.NetDir, i.Network)
	if err != nil {
		return changed, errors.Join(append([]error{err}, skipped...)...)
	}
	i.noteSkipped(skipped)
	name := listName(file)
	var edited bool
	if name == file {
		edited, err = edit(file, func(text []byte) ([]byte, error) { return with(text, &i.Entry) })
	} else {
		edited, err = true, i.convert(file, name)
	}
	if edited && err == nil {
		changed = append(changed, name)
	}
	return changed, err
}

// convert makes a list of a file for one plugin, and removes that file: it would come before the list. It replaces a list
// that was made of an earlier content of the file, but not that of another network.
func (i *Installer) convert(file, list string) error {
	for range attempts {
		old, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return err
		}
		text, err := with(old, &i.Entry)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		err = placeNew(list, text, info.Mode().Perm())
		if errors.Is(err, fs.ErrExist) {
			_, err = edit(list, func(have []byte) ([]byte, error) {
				if !sameNetwork(have, text) {
					return nil, errors.New("exists, and is not a list of the network that comes before it: remove one of the two files")
				}
				return text, nil
			})
		}
		if err != nil {
			return err
		}
		removed, err := removeIf(file, old)
		if removed || err != nil {
			return err
		}
		if err := os.Remove(list); err != nil { // another program has written the file meanwhile
			return err
		}
	}
	return fmt.Errorf("%s: another program keeps writing it: stop that program", file)
}

// copyProgram copies the plugin if the node has none, or another one. It reads the two files again only if one has changed.
func (i *Installer) copyProgram() (bool, error) {
	target := filepath.Join(i.BinDir, cni.PluginName)
	now := copies{statOf(i.Program), statOf(target)}
	if now.unchanged(&i.equal) {
		return false, nil
	}
	text, err := os.ReadFile(filepath.Clean(i.Program))
	if err != nil {
		return false, err
	}
	if old, err := os.ReadFile(filepath.Clean(target)); err == nil && bytes.Equal(old, text) {
		if now.old(time.Now()) {
			i.equal = now
		}
		return false, nil
	}
	_ = i.removeOldCopies() // the next copy tries again
	return true, place(target, text, 0o755)
}

// copyTime is more than a copy takes. A file that is older belongs to an agent that was killed.
const copyTime = time.Minute

// removeOldCopies removes unfinished copies of the plugin: each is large. It leaves NetDir alone. A temporary file there may
// have the only copy of what another program wrote.
func (i *Installer) removeOldCopies() error {
	files, err := filepath.Glob(filepath.Join(i.BinDir, temporaryFiles))
	for _, file := range files {
		if info := statOf(file); info != nil && time.Since(info.ModTime()) > copyTime {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// copies are the states of the program and of its copy on the node; nil: the file cannot be read.
type copies struct{ program, target fs.FileInfo }

// unchanged reports whether both files are those of another state, and were not written since.
func (c *copies) unchanged(since *copies) bool {
	same := func(a, b fs.FileInfo) bool {
		return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	}
	return same(c.program, since.program) && same(c.target, since.target)
}

// old reports whether a later write of either file would change its time: times of files are not exact.
func (c *copies) old(now time.Time) bool {
	for _, info := range []fs.FileInfo{c.program, c.target} {
		if info == nil || now.Sub(info.ModTime()) < time.Second {
			return false
		}
	}
	return true
}

func statOf(file string) fs.FileInfo {
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	return info
}

// Remove removes the entry from all networks, then the program. The program stays if a file cannot be read or changed: without
// it, a network that names it starts no Pod.
func (i *Installer) Remove() error {
	entries, err := os.ReadDir(i.NetDir)
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		file := filepath.Join(i.NetDir, e.Name())
		if e.IsDir() || !slices.Contains(extensions, filepath.Ext(file)) {
			continue
		}
		text, err := os.ReadFile(filepath.Clean(file))
		if err == nil && bytes.Contains(text, []byte(cni.PluginName)) {
			_, err = edit(file, without)
		}
		failed = append(failed, err)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	err = os.Remove(filepath.Join(i.BinDir, cni.PluginName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, i.removeOldCopies())
}

// Intervals of Run.
const (
	settle   = 50 * time.Millisecond // from an event to the check: programs write in several steps
	maxPause = 30 * time.Second
	recheck  = 30 * time.Second // without events
	fight    = 4                // changes, with shorter breaks than maxPause, that are more than those of a start
)

// poll is the interval of checks if the folders cannot be watched.
var poll = time.Second

// newWatcher makes a watcher of folders.
var newWatcher = fsnotify.NewWatcher

// pause is the wait after a change, doubled while another program undoes each one.
var pause = time.Second

// Run installs, and repairs the installation after changes by others, until ctx ends.
func (i *Installer) Run(ctx context.Context) error {
	for _, dir := range []string{i.NetDir, i.BinDir} {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
	}
	events, stop := i.watch()
	defer stop()
	delay, repeated := pause, 0
	for last := time.Now(); ; {
		changed, err := i.Install()
		i.note(changed, err)
		wait := settle
		if len(changed) > 0 {
			if time.Since(last) > maxPause {
				delay, repeated = pause, 0
			}
			if repeated++; repeated == fight {
				i.Log.Warn("another program removes the CNI plugin again and again, so Pods that start meanwhile have no rules of interception: "+
					"configure that program to keep plugins of others, for Cilium with cni.exclusive=false", "files", changed)
			}
			wait, last = delay, time.Now()
			delay = min(2*delay, maxPause)
		}
		if !events.next(ctx, wait) {
			return nil
		}
	}
}

// events are changes of the node's folders.
type events struct {
	changes <-chan fsnotify.Event
	lost    <-chan error
	recheck time.Duration // without events
}

// watch watches the node's folders. All programs of a node share the kernel's limit of watchers; without one, the
// folders are read often.
func (i *Installer) watch() (e events, stop func()) {
	w, err := newWatcher()
	if err == nil {
		err = errors.Join(w.Add(i.NetDir), w.Add(i.BinDir))
	}
	if err == nil {
		return events{w.Events, w.Errors, recheck}, func() { _ = w.Close() }
	}
	i.Log.Warn("the node's folders cannot be watched; they are read often instead: raise fs.inotify.max_user_instances on the node", "error", err)
	if w != nil {
		_ = w.Close()
	}
	return events{recheck: poll}, func() {}
}

// next waits for an event and its successors, but at least for a time. It returns false if ctx ends.
func (e *events) next(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-e.changes:
	case <-e.lost: //nolint:errcheck // the folder is read again
	case <-time.After(e.recheck):
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-e.changes:
		case <-e.lost: //nolint:errcheck // the folder is read again
		case <-timer.C:
			return true
		}
	}
}

// noteSkipped logs invalid files that come before the node's network, each combination once.
func (i *Installer) noteSkipped(files []error) {
	if err := errors.Join(files...); i.skipped.New(err) {
		i.Log.Warn("ignored an invalid CNI configuration file: remove it, container runtimes may reject the node's network because of it", "error", err)
	}
}

// note logs a change, and each problem once.
func (i *Installer) note(changed []string, err error) {
	for _, file := range changed {
		i.Log.Info("installed the CNI plugin", "file", file)
	}
	if i.problems.New(err) {
		i.Log.Warn("the CNI plugin is not installed, so Pods of this node start without it; retrying", "error", err)
	}
	i.Checked(err)
}
