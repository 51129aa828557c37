package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// SourceName is the source's name in the intake.
const SourceName = "kubernetes"

// Intake receives events: *store.Intake.
type Intake interface {
	Put(events ...store.Event)
	Synced(source string)
}

// Delay is a measure of the API server's delay.
type Delay string

// The measures.
const (
	DelayObject Delay = "object" // from the write of an object, in whole seconds, to its event
	DelayWrite  Delay = "write"  // a write of the heartbeat, from request to response
	DelayWatch  Delay = "watch"  // from the request of that write to its event
)

// Meter counts events and delays. It is safe for concurrent use.
type Meter interface {
	// Event counts an event of a kind: add, update, delete, or updatesame if it changes nothing for the mesh. custom
	// distinguishes Istio's kinds from Kubernetes' own.
	Event(kind string, custom bool, event string)
	APIDelay(of Delay, d time.Duration)
}

// Source watches an API server. Its exported fields are set before Run.
type Source struct {
	Client        *Client
	Decoder       config.Decoder
	RootNamespace string // namespace of the mesh's configuration and the heartbeat
	Intake        Intake
	Meter         Meter
	Log           *slog.Logger
	Observer      Observer // nil: none
	// Identity names this control plane in the heartbeat. Heartbeat is its interval; 0: none.
	Identity  string
	Heartbeat time.Duration

	log    problemLog
	status status
	beaten atomic.Int64 // when the heartbeat was last received, in Unix nanoseconds; 0: none is written

	mu    sync.Mutex // guards sinks, which Run's goroutine changes and Problems reads
	sinks []*sink
}

// Intervals of the search for kinds.
const (
	// discoverEvery is how soon a kind is found that is installed later.
	discoverEvery = 2 * time.Second
	// goneAfter is how long a kind must be missing before its objects are removed. A starting API server does not know
	// custom kinds yet.
	goneAfter = 30 * time.Second
)

// Run lists and watches until ctx ends. It reports Synced when everything was listed. It retries while the API server
// is unavailable.
func (s *Source) Run(ctx context.Context) error {
	s.log.log, s.status.log = s.Log, s.Log
	kinds := builtin(s.RootNamespace, s.Decoder.MeshConfigName())
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

// sink returns a sink whose problems are reported.
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
	missingSince time.Time // zero: not missing
}

// follow searches for custom kinds and watches the installed ones, until ctx ends. Kinds count as missing only in the answer of an
// API server that is ready: without policies, calls would be allowed that they forbid.
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
		if err == nil && changed && (have == nil || found.lacks(watched)) {
			if err = s.Client.ready(ctx); err == nil {
				found, newTag, changed, err = s.Client.discover(ctx, "") // the first answer may be older
			}
		}
		s.status.record("discovery", err)
		if err == nil {
			if changed {
				have, tag = found, newTag
			}
			s.install(ctx, have, watched, time.Now())
		}
		timer.Reset(discoverEvery)
	}
}

// lacks reports whether a kind that is watched is missing.
func (h served) lacks(watched map[string]*installed) bool {
	return slices.ContainsFunc(customKinds(), func(k config.Resource) bool { return watched[k.Kind+"."+k.Group] != nil && h.find(k) == nil })
}

// install starts watching new kinds, and stops watching kinds that are gone.
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

// watch starts to watch a custom kind. Until the first search is over, its kinds count as not listed yet, and proxies
// wait.
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

// follows changes to the version of a kind that the API server has now. The objects stay in force until the new version
// was listed.
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

// gone stops watching a kind that was missing for long enough, and removes its objects.
func (s *Source) gone(w *installed, now time.Time) bool {
	if w.missingSince.IsZero() {
		w.missingSince = now
	}
	if now.Sub(w.missingSince) < goneAfter {
		return false
	}
	w.stop()
	<-w.ended
	_ = w.sink.Replace(nil, "") // fails only for objects that cannot be decoded
	s.forget(w.sink)
	s.status.forget(w.sink.resource.title())
	s.Log.Info("a kind is not installed any more; its objects are gone", "kind", w.sink.resource.Kind)
	return true
}

// Problems returns the present problems, sorted.
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

// ProblemsOf returns the present problems of an object, sorted.
func (s *Source) ProblemsOf(key model.Key) problem.List {
	n := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	if key.IsMeshConfig() {
		n.Name = s.Decoder.MeshConfigName()
	}
	s.mu.Lock()
	sinks := slices.Clone(s.sinks)
	s.mu.Unlock()
	var out problem.List
	for _, k := range sinks {
		out = append(out, k.problemsOf(key.Kind, n)...)
	}
	out.Sort()
	return out
}

// Waiting returns an error that lists what was not listed yet; nil if everything was.
func (s *Source) Waiting() error { return s.status.waiting() }

// reflect keeps a sink up to date until ctx ends. status logs changes of results once.
func (s *Source) reflect(ctx context.Context, r *resource, k *sink) {
	lw, err := s.Client.listWatch(r, func(err error) { s.status.record(r.title(), err) })
	if err != nil {
		s.status.record(r.title(), err)
		return
	}
	reflectInto(ctx, r.Kind, lw, r.example, k)
}
