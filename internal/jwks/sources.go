package jwks

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

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
	wanted[name].timeout = max(wanted[name].timeout, min(cmp.Or(r.Timeout, defaultTimeout), maxTimeout))
}

func (k *Keeper) forget(name string, s *source) {
	delete(k.sources, name)
	k.setProblem(name, "")
	if s.told != nil {
		k.Intake.Put(store.Event{Key: s.told.Key, Observed: time.Now()})
	}
}

// fetchDue begins what is due, as far as there is room: what has waited for longest first, so that places
// that do not answer keep nobody out.
func (k *Keeper) fetchDue(ctx context.Context) {
	now := time.Now()
	for _, name := range slices.SortedFunc(maps.Keys(k.sources), k.dueFirst) {
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

func (k *Keeper) dueFirst(a, b string) int {
	return cmp.Or(k.sources[a].due.Compare(k.sources[b].due), strings.Compare(a, b))
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

// next is how long there is nothing to do; without room for another fetch, until one ends.
func (k *Keeper) next() time.Duration {
	wait := time.Hour
	select {
	case <-k.settled:
	default:
		wait = syncEvery
	}
	for _, s := range k.sources {
		if !s.fetching && k.running < together {
			wait = min(wait, time.Until(s.due))
		}
	}
	return max(wait, time.Millisecond)
}
