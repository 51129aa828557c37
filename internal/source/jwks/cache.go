// Package jwks fetches the keys that verify tokens, for all proxies. Rules of RequestAuthentications name their
// sources. The keys go through the intake as objects of kind KeySet, and are fetched again periodically. After a
// failure the last keys stay. Without keys, no token is valid.
package jwks

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/safedial"
)

const (
	refreshEvery = 20 * time.Minute // as in Istio
	retryFirst   = time.Second      // after a failure; doubles with each further one
	retryMost    = time.Minute
	// settleIn bounds how long proxies wait for the first keys after a start.
	settleIn = 5 * time.Second
	// maxSources bounds the sources; further ones have no keys. Each namespace has its share.
	maxSources = 1000
	// together is how many are fetched at the same time, at most half of them for one namespace.
	together = 8
)

// Cache holds the keys of all sources.
type Cache struct {
	// Set before Run.
	Intake   *store.Intake
	Snapshot func() *store.Snapshot
	Log      *slog.Logger
	Refresh  time.Duration // 0: 20 minutes
	client   *http.Client
	wake     chan struct{} // holds one token after a change
	settled  chan struct{} // closed when the first keys are in the store, or settleIn is over
	results  chan result

	// Used by Run's goroutine only.
	sources map[string]*source
	running int            // fetches
	busy    map[string]int // fetches by namespace
	serial  uint64

	mu       sync.Mutex        // guards the field below
	problems map[string]string // why the last fetch failed, by source
}

// New returns a Cache. Call Run once.
func New(in *store.Intake, snapshot func() *store.Snapshot, dialer safedial.Dialer, log *slog.Logger) *Cache {
	return &Cache{
		Intake: in, Snapshot: snapshot, Log: log, client: newClient(dialer),
		wake: make(chan struct{}, 1), settled: make(chan struct{}), results: make(chan result, together),
		sources: map[string]*source{}, busy: map[string]int{}, problems: map[string]string{},
	}
}

// Applied reports a batch that is in the store. It does not block.
func (k *Cache) Applied(changes []store.Change) {
	if !slices.ContainsFunc(changes, func(c store.Change) bool { return c.Key.Kind == model.KindRequestAuthentication }) {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default: // a token already waits
	}
}

// Wait waits for the first keys after a start. Proxies that reconnect have keys already, and must not lose them.
func (k *Cache) Wait(ctx context.Context) error {
	select {
	case <-k.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run works until ctx ends. loaded is closed when the store has the sources' first objects.
func (k *Cache) Run(ctx context.Context, loaded <-chan struct{}) {
	select {
	case <-loaded:
	case <-ctx.Done():
	}
	begun := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		k.look()
		k.fetchDue(ctx)
		k.settle(time.Since(begun))
		timer.Reset(k.next())
		select {
		case <-ctx.Done():
			for k.running > 0 {
				k.over(<-k.results)
			}
			k.settle(settleIn) // without synced sources too
			return
		case <-k.wake:
		case <-timer.C:
		case r := <-k.results:
			k.over(r)
			k.take(r)
		}
	}
}

// syncEvery is how often Run checks whether the store has the keys that it put into the intake.
const syncEvery = 10 * time.Millisecond

// settle admits proxies once the store has the first keys, or the reasons why there are none.
func (k *Cache) settle(after time.Duration) {
	select {
	case <-k.settled:
		return
	default:
	}
	if after < settleIn && !k.isSettled() {
		return
	}
	close(k.settled)
}

func (k *Cache) isSettled() bool {
	snap := k.Snapshot()
	for _, s := range k.sources {
		if s.sent == nil || snap.Get(s.sent.Key) == nil {
			return false
		}
	}
	return true
}

func (k *Cache) setProblem(name, problem string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if problem == "" {
		delete(k.problems, name)
	} else {
		k.problems[name] = problem
	}
}

// Problems returns the sources whose last fetch failed.
func (k *Cache) Problems() problem.List {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out problem.List
	for _, name := range slices.Sorted(maps.Keys(k.problems)) {
		out = append(out, problem.Problem{
			Severity: problem.SeverityError, Code: code.KeysUnavailable, Object: model.Key{Kind: model.KindKeySet, Name: name},
			Message: "cannot be fetched: " + k.problems[name],
		})
	}
	return out
}
