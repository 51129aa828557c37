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

// status tracks how the API server answers, and what must be listed before proxies are served. It logs each change
// once.
type status struct {
	log *slog.Logger

	mu      sync.Mutex          // guards the fields below
	pending map[string]struct{} // kinds that were not listed yet; nil: all were
	synced  func()
	answers map[string]time.Time // time of the last answer, by kind
	failing map[string]failure   // the last failed request, by kind
	denied  map[string]bool      // kinds without permission to read; logged once each
	// unserved are kinds that the API server has but answers as unknown, and since when.
	unserved map[string]time.Time
	logged   map[string]bool // those that were logged
	away     bool            // the log has reported that the API server does not answer
	missing  string          // kinds that are not installed, as logged
	searched bool            // the search for custom kinds is over
}

// failure is the last of consecutive failures.
type failure struct {
	err   error
	since time.Time
}

// searching is the entry for the search of custom kinds in pending.
const searching = "discovery"

func (s *status) begin(kinds []*resource, synced func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending, s.synced = map[string]struct{}{searching: {}}, synced
	s.answers, s.failing, s.denied = map[string]time.Time{}, map[string]failure{}, map[string]bool{}
	s.unserved, s.logged = map[string]time.Time{}, map[string]bool{}
	for _, r := range kinds {
		s.pending[r.title()] = struct{}{}
	}
}

// await adds a kind that must be listed, unless everything was.
func (s *status) await(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		s.pending[kind] = struct{}{}
	}
}

// listed records that all objects of a kind are in the intake.
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

// discovered records the kinds that are not installed, after each search.
func (s *status) discovered(missing string) {
	s.mu.Lock()
	logged := s.searched && s.missing == missing
	s.searched, s.missing = true, missing
	s.mu.Unlock()
	if !logged && missing != "" {
		s.log.Info("kinds are not installed in the cluster; they are read once they are installed", "kinds", missing)
	}
	s.listed(searching)
}

// record records the result of a request for a kind.
func (s *status) record(kind string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the source ends
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
			s.log.Warn("the API server does not answer; known objects stay in force, and requests are repeated", "kind", kind, "error", err)
		}
	}
}

// unservedAfter is how long a kind may be unknown before that is logged. A starting API server does not know custom
// kinds yet.
const unservedAfter = 10 * time.Second

// unknown records that the API server answers an installed kind as unknown. mu is held.
func (s *status) unknown(kind string, err error, now time.Time) {
	since, known := s.unserved[kind]
	if !known {
		s.unserved[kind] = now
		return
	}
	if now.Sub(since) >= unservedAfter && !s.logged[kind] {
		s.logged[kind] = true
		s.log.Warn("the API server does not serve an installed kind any more; its known objects stay in force, and changes are not received", "kind", kind, "error", err)
	}
}

// expired reports whether a watch must start again, which is not a failure.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// failed records a failure. mu is held.
func (s *status) failed(kind string, err error, now time.Time) {
	f, failing := s.failing[kind]
	if !failing {
		f.since = now
	}
	f.err = err
	s.failing[kind] = f
}

// forget removes a kind that is not watched any more.
func (s *status) forget(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered(kind, time.Time{})
	delete(s.answers, kind)
}

// answered clears a kind's failure. mu is held.
func (s *status) answered(kind string, now time.Time) {
	s.answers[kind] = now
	delete(s.failing, kind)
	delete(s.denied, kind)
	delete(s.unserved, kind)
	delete(s.logged, kind)
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

// waiting describes what was not listed yet, with the reason if it is known.
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

// problemLog logs problems.
type problemLog struct{ log *slog.Logger }

// maxLogged is how many problems of one list are logged; /debug/problems has all.
const maxLogged = 20

// problemNews are changes of the problems of objects.
type problemNews struct{ found, solved problem.List }

// problems logs solved problems first, so that the log ends with what is wrong at present.
func (l *problemLog) problems(news problemNews) {
	for i, p := range news.solved {
		if i == maxLogged {
			l.log.Info("more configuration problems are solved; see /debug/problems", "more", len(news.solved)-i)
			break
		}
		l.log.Info("configuration problem solved", p.Attrs()...)
	}
	for i, p := range news.found {
		if i == maxLogged {
			l.log.Warn("there are more configuration problems; see /debug/problems", "more", len(news.found)-i)
			return
		}
		l.log.Log(context.Background(), p.Severity.LogLevel(), "configuration problem", p.Attrs()...)
	}
}

// Health describes the connection to the API server.
type Health struct {
	Kinds []KindHealth `json:"kinds"` // what is listed and watched, by name
	// Heartbeat is when a write of the heartbeat was last received, or the source's start; zero if none is written.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// KindHealth describes the requests for a kind. During failures the objects stay in force.
type KindHealth struct {
	Kind     string    `json:"kind"`
	Answered time.Time `json:"answered,omitzero"` // the last answer; a running watch counts as one
	Failing  time.Time `json:"failing,omitzero"`  // start of the failures; zero: the last request succeeded
	Error    string    `json:"error,omitempty"`
}

// FailingFor returns the duration of the failures; 0: the last request succeeded.
func (k *KindHealth) FailingFor(now time.Time) time.Duration {
	if k.Failing.IsZero() {
		return 0
	}
	return now.Sub(k.Failing)
}

// Health returns the present health. It is safe for concurrent use.
func (s *Source) Health() Health {
	out := Health{Kinds: s.status.health()}
	if at := s.beaten.Load(); at != 0 {
		out.Heartbeat = time.Unix(0, at)
	}
	return out
}

func (s *status) health() []KindHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]KindHealth, 0, len(s.answers)+len(s.failing))
	for kind, at := range s.answers {
		out = append(out, KindHealth{Kind: kind, Answered: at})
	}
	for kind := range s.failing {
		if _, ok := s.answers[kind]; !ok {
			out = append(out, KindHealth{Kind: kind})
		}
	}
	for i := range out {
		if f, ok := s.failing[out[i].Kind]; ok {
			out[i].Failing, out[i].Error = f.since, f.err.Error()
		}
	}
	slices.SortFunc(out, func(a, b KindHealth) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}
