package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// status knows how well the API server answers, and what has to be listed before anybody
// is served. It tells changes in the log, each once.
type status struct {
	log *slog.Logger

	mu      sync.Mutex          // guards all below
	pending map[string]struct{} // kinds that have not been listed; nil: all have been
	synced  func()
	answers map[string]time.Time // when a request was answered last, by kind
	failing map[string]failure   // requests that failed last, by kind
	denied  map[string]bool      // kinds that may not be read: told once each
	// unserved are kinds that the API server does not know, though it has them: since when.
	unserved map[string]time.Time
	toldOf   map[string]bool // those that the log has told
	away     bool            // the log has said that the API server does not answer
	missing  string          // kinds that are not installed, as the log has told
	searched bool            // custom kinds have been looked for
}

// failure is the last of some that came one after the other.
type failure struct {
	err   error
	since time.Time
}

// searching stands among what is pending for the search for custom kinds.
const searching = "discovery"

func (s *status) begin(kinds []*resource, synced func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.synced = map[string]struct{}{searching: {}}, synced
	s.answers, s.failing, s.denied = map[string]time.Time{}, map[string]failure{}, map[string]bool{}
	s.unserved, s.toldOf = map[string]time.Time{}, map[string]bool{}
	for _, r := range kinds {
		s.pending[r.title()] = struct{}{}
	}
}

// await adds a kind that has to be listed, unless all have been.
func (s *status) await(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		s.pending[kind] = struct{}{}
	}
}

// listed is told that a kind has been put into the intake as a whole.
func (s *status) listed(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return
	}
	if delete(s.pending, kind); len(s.pending) == 0 {
		s.pending = nil
		s.synced()
	}
}

// discovered is told after each search which kinds are not installed.
func (s *status) discovered(missing string) {
	s.mu.Lock()
	told := s.searched && s.missing == missing
	s.searched, s.missing = true, missing
	s.mu.Unlock()
	if !told && missing != "" {
		s.log.Info("these kinds are not installed in the cluster; they are read once they are", "kinds", missing)
	}
	s.listed(searching)
}

// heard is told how a request about a kind went.
func (s *status) heard(kind string, err error) {
	if errors.Is(err, context.Canceled) {
		return // we are ending
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || expired(err) {
		s.answered(kind, now)
		return
	}
	s.failed(kind, err, now)
	switch {
	case apierrors.IsNotFound(err):
		s.unknown(kind, err, now)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		if !s.denied[kind] {
			s.denied[kind] = true
			s.log.Error("the API server denies access; allow it in a ClusterRole", "kind", kind, "error", err)
		}
	default:
		if !s.away {
			s.away = true
			s.log.Warn("the API server does not answer; what is known stays in force, and it is asked again", "kind", kind, "error", err)
		}
	}
}

// unservedAfter is how long a kind may be unknown before that is told: an API server that starts does not
// know custom kinds yet.
const unservedAfter = 10 * time.Second

// unknown is told that the API server does not know a kind that it was found to have; mu is held.
func (s *status) unknown(kind string, err error, now time.Time) {
	since, known := s.unserved[kind]
	if !known {
		s.unserved[kind] = now
		return
	}
	if now.Sub(since) >= unservedAfter && !s.toldOf[kind] {
		s.toldOf[kind] = true
		s.log.Warn("the API server does not serve a kind as it did; what is known of it stays in force, and nothing new is heard of", "kind", kind, "error", err)
	}
}

// expired reports whether a watch has to begin anew: nothing is wrong with that.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// failed notes a failure; mu is held.
func (s *status) failed(kind string, err error, now time.Time) {
	f, failing := s.failing[kind]
	if !failing {
		f.since = now
	}
	f.err = err
	s.failing[kind] = f
}

// forget is told that a kind is not watched any more.
func (s *status) forget(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered(kind, time.Time{})
	delete(s.answers, kind)
}

// answered clears a kind's failure; mu is held.
func (s *status) answered(kind string, now time.Time) {
	s.answers[kind] = now
	delete(s.failing, kind)
	delete(s.denied, kind)
	delete(s.unserved, kind)
	delete(s.toldOf, kind)
	for k := range s.failing {
		if _, unserved := s.unserved[k]; !unserved && !s.denied[k] {
			return
		}
	}
	if s.away {
		s.away = false
		s.log.Info("the API server answers again")
	}
}

// waiting says what has not been listed yet, and why not where that is known.
func (s *status) waiting() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return nil
	}
	kinds := slices.Sorted(maps.Keys(s.pending))
	for _, k := range kinds {
		if f, failing := s.failing[k]; failing {
			return fmt.Errorf("waiting for the API server: %s: %w", k, f.err)
		}
	}
	return fmt.Errorf("waiting for the API server to list %s", strings.Join(kinds, ", "))
}

// problemLog writes problems to the log.
type problemLog struct{ log *slog.Logger }

// maxLogged is how many problems of one list are logged; all are at /debug/problems.
const maxLogged = 20

func (l *problemLog) problems(list problem.List) {
	for i, p := range list {
		if i == maxLogged {
			l.log.Warn("there are more configuration problems; see /debug/problems", "more", len(list)-i)
			return
		}
		l.log.Log(context.Background(), p.Severity.LogLevel(), "configuration problem", p.Attrs()...)
	}
}
