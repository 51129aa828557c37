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
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/jwt"
)

// source is a location of keys.
type source struct {
	timeout   time.Duration
	discovers bool
	due       time.Time // of the next fetch
	fetching  bool
	of        string        // the namespace to which its fetches count
	rank      int           // number of sources of that namespace with precedence
	failures  int           // since the last success
	keys      string        // of the last success
	leftOut   string        // why keys has not all keys of the source
	sent      *model.KeySet // the last object in the intake; nil: none
}

// result is the result of a fetch.
type result struct {
	name, of string
	keys     *jwt.Set
	err      error
}

// look applies the present rules.
func (k *Cache) look() {
	wanted := k.wanted()
	for name, s := range k.sources {
		if wanted[name] == nil {
			k.forget(name, s)
		}
	}
	for name, w := range wanted {
		if s := k.sources[name]; s != nil {
			s.timeout, s.discovers, s.of, s.rank = w.timeout, w.discovers, w.of, w.rank
		} else {
			k.sources[name] = w
		}
	}
}

// wanted returns the sources of rules. If there are too many, namespaces get their shares in turns.
func (k *Cache) wanted() map[string]*source {
	wanted, asked := map[string]*source{}, map[string][]string{}
	for o := range k.Snapshot().All(model.KindRequestAuthentication) {
		a, ok := o.(*model.RequestAuthentication)
		if !ok || len(model.Selectors(a)) == 0 {
			continue
		}
		for i := range a.Rules {
			if name := want(wanted, &a.Rules[i]); name != "" {
				asked[a.Namespace] = append(asked[a.Namespace], name)
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(asked)) {
		k.turns(wanted, namespace, asked[namespace])
	}
	names := slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		return cmp.Or(cmp.Compare(wanted[a].rank, wanted[b].rank), strings.Compare(a, b))
	})
	for _, name := range names[min(len(names), maxSources):] {
		delete(wanted, name)
	}
	return wanted
}

// turns orders the sources of a namespace: existing ones first. A source of several namespaces has the earliest turn.
func (k *Cache) turns(wanted map[string]*source, namespace string, names []string) {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(k.known(b), k.known(a)), strings.Compare(a, b))
	})
	for rank, name := range slices.Compact(names) {
		if s := wanted[name]; s.of == "" || rank < s.rank {
			s.of, s.rank = namespace, rank
		}
	}
}

// known returns 1 for an existing source, else 0.
func (k *Cache) known(name string) int {
	if k.sources[name] != nil {
		return 1
	}
	return 0
}

// want adds the source of a rule, and returns its name; "": none.
func want(wanted map[string]*source, r *model.JWTRule) (name string) {
	if name = r.KeySource(); name == "" {
		return ""
	}
	if wanted[name] == nil {
		wanted[name] = &source{discovers: r.Discovers()}
	}
	wanted[name].timeout = max(wanted[name].timeout, min(cmp.Or(r.Timeout, defaultTimeout), maxTimeout))
	return name
}

func (k *Cache) forget(name string, s *source) {
	delete(k.sources, name)
	k.setProblem(name, "")
	if s.sent != nil {
		k.Intake.Put(store.Event{Key: s.sent.Key, Observed: time.Now()})
	}
}

// fetchDue starts the fetches that are due, as far as there is room: the longest waiting first, and not only those of
// one namespace, so that sources without an answer do not block others.
func (k *Cache) fetchDue(ctx context.Context) {
	now := time.Now()
	for _, name := range slices.SortedFunc(maps.Keys(k.sources), k.dueFirst) {
		s := k.sources[name]
		if now.Before(s.due) || !k.hasRoom(s) {
			continue
		}
		s.fetching = true
		k.running++
		k.busy[s.of]++
		timeout, discovers, of := s.timeout, s.discovers, s.of
		go func() { // ends within the timeout; Run waits for it
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			keys, err := k.fetch(ctx, name, discovers)
			k.results <- result{name, of, keys, err}
		}()
	}
}

// hasRoom reports whether a source can be fetched now.
func (k *Cache) hasRoom(s *source) bool {
	return !s.fetching && k.running < together && k.busy[s.of] < together/2
}

// over records the end of a fetch.
func (k *Cache) over(r result) {
	k.running--
	if k.busy[r.of]--; k.busy[r.of] == 0 {
		delete(k.busy, r.of)
	}
}

func (k *Cache) dueFirst(a, b string) int {
	return cmp.Or(k.sources[a].due.Compare(k.sources[b].due), strings.Compare(a, b))
}

// take stores the result of a fetch and the time of the next one.
func (k *Cache) take(r result) {
	s := k.sources[r.name]
	if s == nil {
		return // no rule refers to it any more
	}
	s.fetching = false
	if r.err != nil {
		s.failures++
		s.due = time.Now().Add(min(retryMost, retryFirst<<min(s.failures-1, 10)))
		k.Log.Warn("keys of tokens cannot be fetched", "from", r.name, "error", r.err, "stale", s.keys != "")
		k.send(r.name, s, r.err.Error())
		return
	}
	every := cmp.Or(k.Refresh, refreshEvery)
	leftOut := r.keys.LeftOut()
	if leftOut != "" && leftOut != s.leftOut {
		k.Log.Warn("keys of tokens cannot be read: tokens signed with them are refused", "from", r.name, "reasons", leftOut)
	}
	s.failures, s.keys, s.leftOut = 0, r.keys.Public(), leftOut
	s.due = time.Now().Add(every - rand.N(every/10+1))
	k.send(r.name, s, "")
}

// send puts changed keys into the intake.
func (k *Cache) send(name string, s *source, problem string) {
	k.setProblem(name, problem)
	if s.sent != nil && s.sent.Keys == s.keys && s.sent.LeftOut == s.leftOut && s.sent.Problem == problem {
		return
	}
	k.serial++
	s.sent = &model.KeySet{
		Meta: model.Meta{
			Key: model.Key{Kind: model.KindKeySet, Name: name}, ResourceVersion: strconv.FormatUint(k.serial, 10), Origin: name,
		},
		Keys: s.keys, LeftOut: s.leftOut, Problem: problem,
	}
	k.Intake.Put(store.Event{Key: s.sent.Key, Object: s.sent, Observed: time.Now()})
}

// next returns the time until the next fetch; without room, until one ends.
func (k *Cache) next() time.Duration {
	wait := time.Hour
	select {
	case <-k.settled:
	default:
		wait = syncEvery
	}
	for _, s := range k.sources {
		if k.hasRoom(s) {
			wait = min(wait, time.Until(s.due))
		}
	}
	return max(wait, time.Millisecond)
}
