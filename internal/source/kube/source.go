package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// SourceName is how this source is known to the intake.
const SourceName = "kubernetes"

// Intake is where events go; *store.Intake is one.
type Intake interface {
	Put(events ...store.Event)
	Synced(source string)
}

// Delay is what a delay of the API server was measured from.
type Delay string

// The measures.
const (
	DelayObject Delay = "object" // from when an object was written, to the second, to its event
	DelayWrite  Delay = "write"  // a write of the heartbeat, from request to response
	DelayWatch  Delay = "watch"  // from the request of that write to its event
)

// Meter counts; all functions may be called by many goroutines.
type Meter interface {
	// Event counts an event of a kind: add, update, delete, or updatesame where it means
	// nothing to the mesh. custom tells Istio's kinds from Kubernetes' own.
	Event(kind string, custom bool, event string)
	APIDelay(of Delay, d time.Duration)
}

// Source watches an API server. Its exported fields are set before Run.
type Source struct {
	Client        *Client
	Decoder       config.Decoder
	RootNamespace string // has the mesh's configuration and the heartbeat
	Intake        Intake
	Meter         Meter
	Log           *slog.Logger
	Observer      Observer // nil: nobody
	// Identity names this control plane in the heartbeat; Heartbeat is how often it is
	// written, 0: never.
	Identity  string
	Heartbeat time.Duration

	log    problemLog
	status status
	beaten atomic.Int64 // when the heartbeat was seen last, in Unix nanoseconds; 0: none is written

	mu    sync.Mutex // guards sinks: Run's goroutine changes them, anybody asks for problems
	sinks []*sink
}

// Timing of the search for kinds.
const (
	// discoverEvery is how soon a kind is noticed that is installed later.
	discoverEvery = 2 * time.Second
	// goneAfter is how long a kind must be missing before its objects are. While an API
	// server starts it does not know custom kinds yet.
	goneAfter = 30 * time.Second
)

// Run lists and watches until ctx ends; it says Synced once all that there is has been
// listed. An API server that is away is no failure: it is asked again.
func (s *Source) Run(ctx context.Context) error {
	s.log.log, s.status.log = s.Log, s.Log
	kinds := builtin(s.RootNamespace)
	s.status.begin(kinds, func() { s.Intake.Synced(SourceName) })
	var running sync.WaitGroup
	defer running.Wait()
	for _, r := range kinds {
		k := s.sink(r)
		running.Go(func() { s.reflect(ctx, r, k) })
	}
	if s.Heartbeat > 0 {
		running.Go(func() { s.beat(ctx) })
	}
	s.follow(ctx)
	return nil
}

// sink makes a sink that problems are asked of.
func (s *Source) sink(r *resource) *sink {
	k := newSink(r, s)
	s.mu.Lock()
	s.sinks = append(s.sinks, k)
	s.mu.Unlock()
	return k
}

func (s *Source) forget(k *sink) {
	s.mu.Lock()
	s.sinks = slices.DeleteFunc(s.sinks, func(other *sink) bool { return other == k })
	s.mu.Unlock()
}

// installed is a custom kind that is watched.
type installed struct {
	sink         *sink
	stop         context.CancelFunc
	ended        chan struct{}
	missingSince time.Time // zero: it is there
}

// follow looks for custom kinds, and watches those that there are, until ctx ends.
func (s *Source) follow(ctx context.Context) {
	watched := map[string]*installed{}
	defer func() {
		for _, w := range watched {
			w.stop()
			<-w.ended
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var have served
	var tag string
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found, newTag, changed, err := s.Client.discover(ctx, tag)
		s.status.heard("discovery", err)
		if err == nil {
			if changed {
				have, tag = found, newTag
			}
			s.install(ctx, have, watched, time.Now())
		}
		timer.Reset(discoverEvery)
	}
}

// install starts to watch what is new, and ends with what is gone.
func (s *Source) install(ctx context.Context, have served, watched map[string]*installed, now time.Time) {
	var missing []string
	for _, k := range customKinds() {
		id := k.Kind + "." + k.Group
		r, w := have.find(k), watched[id]
		switch {
		case r == nil && w == nil:
			if k.Read {
				missing = append(missing, id)
			}
		case r == nil:
			if s.gone(w, now) {
				delete(watched, id)
			}
		case w == nil:
			watched[id] = s.watch(ctx, r)
		default:
			w.missingSince = time.Time{}
			s.follows(ctx, w, r)
		}
	}
	slices.Sort(missing)
	s.status.discovered(strings.Join(missing, ", "))
}

// watch begins to watch a custom kind. Before the first search is over nobody is served, so
// that what it finds counts among what has to be listed.
func (s *Source) watch(ctx context.Context, r *resource) *installed {
	w := &installed{sink: s.sink(r)}
	if r.Read {
		s.status.await(r.title())
	}
	s.begin(ctx, w)
	return w
}

// begin runs a Reflector for a kind until it is stopped.
func (s *Source) begin(ctx context.Context, w *installed) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	w.stop, w.ended = stop, ended
	go func() {
		defer close(ended)
		s.reflect(ctx, w.sink.resource, w.sink)
	}()
}

// follows goes over to the version that the API server has of a kind now, if it is another one. What is held
// stays in force until the new version has been listed.
func (s *Source) follows(ctx context.Context, w *installed, r *resource) {
	old := w.sink.resource
	if old.version == r.version && old.plural == r.plural {
		return
	}
	w.stop()
	<-w.ended
	w.sink.become(r)
	s.Log.Info("another version of a kind is watched", "kind", r.title(), "was", old.version, "is", r.version)
	s.begin(ctx, w)
}

// gone ends with a kind that has been missing for long enough, with all its objects.
func (s *Source) gone(w *installed, now time.Time) bool {
	if w.missingSince.IsZero() {
		w.missingSince = now
	}
	if now.Sub(w.missingSince) < goneAfter {
		return false
	}
	w.stop()
	<-w.ended
	_ = w.sink.Replace(nil, "") // fails only on what it cannot decode
	s.forget(w.sink)
	s.status.forget(w.sink.resource.title())
	s.Log.Info("a kind is not installed any more; its objects are gone", "kind", w.sink.resource.Kind)
	return true
}

// Problems is what is wrong now, sorted.
func (s *Source) Problems() []problem.Problem {
	s.mu.Lock()
	sinks := slices.Clone(s.sinks)
	s.mu.Unlock()
	var all problem.List
	for _, k := range sinks {
		all = append(all, k.Problems()...)
	}
	all.Sort()
	return all
}

// Waiting is an error that says what has not been listed yet; nil once all has.
func (s *Source) Waiting() error { return s.status.waiting() }
