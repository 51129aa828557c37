package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
)

// isDir reports whether name is a directory, or was one that had files, or could not be looked into.
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

// readAgain reads a whole tree where events were lost: files that look as they did, too.
func (s *Source) readAgain(now time.Time) {
	paths := map[string]cause{}
	s.addTree(paths, s.Dir)
	for path := range paths {
		paths[path] = causeEvent
	}
	s.apply(paths, now)
}

// addTree adds all files that are below dir, or were. Each directory is watched before its entries are read: whatever appears
// in it meanwhile is seen at least once.
func (s *Source) addTree(paths map[string]cause, dir string) {
	dir = filepath.Clean(dir)
	s.forget(dir)
	l := list(dir, s.watch)
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

// noteErrors records the paths that cannot be read, in place of earlier ones at dir and below it. Their content is unknown
// unless it was read before.
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

// forget ends the watches of directories that are gone, or whose names belong to others now. The watcher would continue to
// report them under their old names.
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
		s.broken[dir+"/"] = problem.Problem{
			Severity: problem.SeverityError, Code: code.Unreadable, File: dir,
			Message: fmt.Sprintf("cannot be watched, so changes are not seen: %v; raise fs.inotify.max_user_watches, or restart after changes", err),
		}
		return
	}
	s.dirs[dir] = info
	delete(s.broken, dir+"/")
}
