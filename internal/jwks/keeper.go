// Package jwks fetches the keys that tokens are checked with, for all proxies: rules of
// RequestAuthentications name where they are. What was fetched goes through the intake, as
// objects of kind KeySet, and is fetched again from time to time; where that fails, the last
// keys stay. Where there never were any, no token is valid.
package jwks

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

const (
	refreshEvery = 20 * time.Minute // as Istio does
	retryFirst   = time.Second      // after a failure; twice as long after each further one
	retryMost    = time.Minute
	// settleIn bounds how long proxies wait for the first keys after a start.
	settleIn = 5 * time.Second
	// maxSources bounds what is fetched; sources beyond have no keys.
	maxSources = 1000
	// together is how many are fetched at the same time.
	together = 8
)

// Keeper keeps the keys that are asked for.
type Keeper struct {
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
	running int // fetches
	serial  uint64

	mu       sync.Mutex        // guards problems
	problems map[string]string // why the last attempt failed, by source
}

// source is a place that keys are fetched from.
type source struct {
	timeout   time.Duration
	discovers bool
	due       time.Time // of the next fetch
	fetching  bool
	failures  int // since it last went well
	keys      string
	told      *model.KeySet // what the intake was told last; nil: nothing
}

// result is what became of a fetch.
type result struct {
	name string
	keys string
	err  error
}

// New makes a keeper. Run must be called once for anything to happen.
func New(in *store.Intake, snapshot func() *store.Snapshot, log *slog.Logger) *Keeper {
	return &Keeper{
		Intake: in, Snapshot: snapshot, Log: log, client: newClient(),
		wake: make(chan struct{}, 1), settled: make(chan struct{}), results: make(chan result, together),
		sources: map[string]*source{}, problems: map[string]string{},
	}
}

// Applied is told of each batch once it is in the store. It does not block.
func (k *Keeper) Applied(changes []store.Change) {
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
func (k *Keeper) Wait(ctx context.Context) error {
	select {
	case <-k.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run works until ctx ends. synced tells whether what the sources had at the start is in the
// store.
func (k *Keeper) Run(ctx context.Context, synced func() bool) {
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
			for ; k.running > 0; k.running-- {
				<-k.results
			}
			k.settle(settleIn) // nobody is to wait for ever
			return
		case <-k.wake:
		case <-timer.C:
		case r := <-k.results:
			k.running--
			k.take(r)
		}
	}
}

// syncEvery is how often the keeper looks whether the store is loaded, and whether it has
// what it was told.
const syncEvery = 10 * time.Millisecond

func (k *Keeper) awaitSync(ctx context.Context, synced func() bool) {
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

// look takes over what rules ask for now.
func (k *Keeper) look() {
	wanted := map[string]*source{}
	for o := range k.Snapshot().All(model.KindRequestAuthentication) {
		a, ok := o.(*model.RequestAuthentication)
		if !ok || len(model.Selectors(a)) == 0 {
			continue
		}
		for i := range a.Rules {
			k.want(wanted, &a.Rules[i])
		}
	}
	for name, s := range k.sources {
		if wanted[name] == nil {
			k.forget(name, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if s := k.sources[name]; s != nil {
			s.timeout, s.discovers = wanted[name].timeout, wanted[name].discovers
		} else if len(k.sources) < maxSources {
			k.sources[name] = wanted[name]
		}
	}
}

func (k *Keeper) want(wanted map[string]*source, r *model.JWTRule) {
	name := r.KeySource()
	if name == "" {
		return
	}
	if wanted[name] == nil {
		wanted[name] = &source{discovers: r.Discovers()}
	}
	wanted[name].timeout = max(wanted[name].timeout, cmp.Or(r.Timeout, defaultTimeout))
}

func (k *Keeper) forget(name string, s *source) {
	delete(k.sources, name)
	k.setProblem(name, "")
	if s.told != nil {
		k.Intake.Put(store.Event{Key: s.told.Key, Observed: time.Now()})
	}
}

// fetchDue begins what is due, as far as there is room.
func (k *Keeper) fetchDue(ctx context.Context) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(k.sources)) {
		s := k.sources[name]
		if s.fetching || now.Before(s.due) || k.running == together {
			continue
		}
		s.fetching = true
		k.running++
		timeout, discovers := s.timeout, s.discovers
		go func() { // ends within timeout; Run waits for it
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			keys, err := k.fetch(ctx, name, discovers)
			k.results <- result{name, keys, err}
		}()
	}
}

// take notes what became of a fetch, and when the next one is due.
func (k *Keeper) take(r result) {
	s := k.sources[r.name]
	if s == nil {
		return // nobody wants it any more
	}
	s.fetching = false
	if r.err != nil {
		s.failures++
		s.due = time.Now().Add(min(retryMost, retryFirst<<min(s.failures-1, 10)))
		k.Log.Warn("keys of tokens cannot be fetched", "from", r.name, "error", r.err, "stale", s.keys != "")
		k.tell(r.name, s, r.err.Error())
		return
	}
	every := cmp.Or(k.Refresh, refreshEvery)
	s.failures, s.keys = 0, r.keys
	s.due = time.Now().Add(every - rand.N(every/10+1))
	k.tell(r.name, s, "")
}

// tell puts what differs into the intake.
func (k *Keeper) tell(name string, s *source, problem string) {
	k.setProblem(name, problem)
	if s.told != nil && s.told.Keys == s.keys && s.told.Problem == problem {
		return
	}
	k.serial++
	s.told = &model.KeySet{
		Meta: model.Meta{
			Key: model.Key{Kind: model.KindKeySet, Name: name}, ResourceVersion: strconv.FormatUint(k.serial, 10), Origin: name,
		},
		Keys: s.keys, Problem: problem,
	}
	k.Intake.Put(store.Event{Key: s.told.Key, Object: s.told, Observed: time.Now()})
}

// settle lets proxies in once the store has the first keys, or why there are none.
func (k *Keeper) settle(after time.Duration) {
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

func (k *Keeper) isSettled() bool {
	snap := k.Snapshot()
	for _, s := range k.sources {
		if s.told == nil || snap.Get(s.told.Key) == nil {
			return false
		}
	}
	return true
}

// next is how long there is nothing to do.
func (k *Keeper) next() time.Duration {
	wait := time.Hour
	select {
	case <-k.settled:
	default:
		wait = syncEvery
	}
	for _, s := range k.sources {
		if !s.fetching {
			wait = min(wait, time.Until(s.due))
		}
	}
	return max(wait, time.Millisecond)
}

func (k *Keeper) setProblem(name, problem string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if problem == "" {
		delete(k.problems, name)
	} else {
		k.problems[name] = problem
	}
}

// Problems are the sources that could not be fetched when it was last tried.
func (k *Keeper) Problems() istioapi.Problems {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out istioapi.Problems
	for _, name := range slices.Sorted(maps.Keys(k.problems)) {
		out = append(out, istioapi.Problem{
			Severity: istioapi.SeverityError, Object: model.Key{Kind: model.KindKeySet, Name: name},
			Message: "cannot be fetched: " + k.problems[name],
		})
	}
	return out
}
