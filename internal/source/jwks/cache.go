// Package jwks fetches the keys that tokens are checked with, for all proxies: rules of
// RequestAuthentications name where they are. What was fetched goes through the intake, as
// objects of kind KeySet, and is fetched again from time to time; where that fails, the last
// keys stay. Where there never were any, no token is valid.
package jwks

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

const (
	refreshEvery = 20 * time.Minute // as Istio does
	retryFirst   = time.Second      // after a failure; twice as long after each further one
	retryMost    = time.Minute
	// settleIn bounds how long proxies wait for the first keys after a start.
	settleIn = 5 * time.Second
	// maxSources bounds what is fetched; sources beyond have no keys. Each namespace has its share.
	maxSources = 1000
	// together is how many are fetched at the same time, at most half of them of one namespace.
	together = 8
)

// Cache keeps the keys that are asked for.
type Cache struct {
	// Fixed.
	Intake   *store.Intake
	Snapshot func() *store.Snapshot
	Log      *slog.Logger
	Refresh  time.Duration // 0: 20 minutes
	client   *http.Client
	wake     chan struct{} // holds one token while there may be something new
	settled  chan struct{} // closed when the first keys are in the store, or were waited for long enough
	results  chan result

	// Touched only by Run's goroutine.
	sources map[string]*source
	running int            // fetches
	busy    map[string]int // the same by namespace
	serial  uint64

	mu       sync.Mutex        // guards problems
	problems map[string]string // why the last attempt failed, by source
}

// New makes a keeper. Run must be called once for anything to happen.
func New(in *store.Intake, snapshot func() *store.Snapshot, log *slog.Logger) *Cache {
	return &Cache{
		Intake: in, Snapshot: snapshot, Log: log, client: newClient(),
		wake: make(chan struct{}, 1), settled: make(chan struct{}), results: make(chan result, together),
		sources: map[string]*source{}, busy: map[string]int{}, problems: map[string]string{},
	}
}

// Applied is told of each batch once it is in the store. It does not block.
func (k *Cache) Applied(changes []store.Change) {
	if !slices.ContainsFunc(changes, func(c store.Change) bool { return c.Key.Kind == model.KindRequestAuthentication }) {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default: // the newest state will be looked at
	}
}

// Wait waits for the first keys after a start: proxies that come back have some already, which
// nothing is to take away from them meanwhile.
func (k *Cache) Wait(ctx context.Context) error {
	select {
	case <-k.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run works until ctx ends. synced reports whether what the sources had at the start is in the
// store.
func (k *Cache) Run(ctx context.Context, synced func() bool) {
	k.awaitSync(ctx, synced)
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
			k.settle(settleIn) // nobody is to wait for ever
			return
		case <-k.wake:
		case <-timer.C:
		case r := <-k.results:
			k.over(r)
			k.take(r)
		}
	}
}

// syncEvery is how often the keeper looks whether the store is loaded, and whether it has
// what it was told.
const syncEvery = 10 * time.Millisecond

func (k *Cache) awaitSync(ctx context.Context, synced func() bool) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for !synced() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// settle lets proxies in once the store has the first keys, or why there are none.
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
		if s.told == nil || snap.Get(s.told.Key) == nil {
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

// Problems are the sources that could not be fetched when it was last tried.
func (k *Cache) Problems() problem.List {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out problem.List
	for _, name := range slices.Sorted(maps.Keys(k.problems)) {
		out = append(out, problem.Problem{
			Severity: problem.SeverityError, Object: model.Key{Kind: model.KindKeySet, Name: name},
			Message: "cannot be fetched: " + k.problems[name],
		})
	}
	return out
}
