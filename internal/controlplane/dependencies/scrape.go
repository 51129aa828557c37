package dependencies

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/controlplane/traffic"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Bounds of a round. Of each workload it asks one proxy, in turn. With more workloads, those come first that were asked the
// longest ago.
const (
	DefaultEvery = time.Minute // between two rounds

	maxAsked     = 300
	maxOfAccount = 16 // of maxAsked, of one service account: its proxies choose the names of workloads
	concurrent   = 2
	maxHosts     = maxCalls // of one proxy
)

// Scraper learns from the metrics of connected proxies.
type Scraper struct {
	Memory  *Memory
	Proxies traffic.Proxies
	Agents  traffic.Agents
	Every   time.Duration // between two rounds; 0: DefaultEvery
	// Snapshot returns the services of the mesh. Other hosts are not learned.
	Snapshot func() *store.Snapshot

	mu    sync.Mutex // guards known
	known map[string]*counters
}

// counters are those of one proxy.
type counters struct {
	of    Workload
	name  string    // of the proxy, name.namespace
	turn  time.Time // of the last question
	at    time.Time // of the last answer; zero: none
	calls map[string]*traffic.Count
	grown map[string]*traffic.Count // between the last two answers; nil: unknown
	over  time.Duration             // between the last two answers
}

// Run asks proxies until ctx ends.
func (s *Scraper) Run(ctx context.Context) {
	every := s.Every
	if every == 0 {
		every = DefaultEvery
	}
	for clock.Sleep(ctx, every) == nil {
		s.round(ctx)
	}
}

// round asks a proxy of each workload.
func (s *Scraper) round(ctx context.Context) {
	var working sync.WaitGroup
	list := s.turn()
	if len(list) == 0 {
		return
	}
	all := servicesOf(s.Snapshot())
	queue := make(chan string)
	for range concurrent {
		working.Go(func() {
			for id := range queue {
				text, err := s.Agents.Metrics(ctx, id, traffic.CalledMetrics)
				if err != nil { // it may have no agent, or be gone
					s.forgetGrowth(id)
					continue
				}
				s.learn(id, traffic.Called(text, maxHosts), all, s.Memory.now())
			}
		})
	}
	for _, id := range list {
		queue <- id
	}
	close(queue)
	working.Wait()
}

// turn returns the proxies of a round, and forgets those that are gone.
func (s *Scraper) turn() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	connected := map[string]*counters{}
	longest := map[Workload]string{}  // the proxy that was asked the longest ago
	asked := map[Workload]time.Time{} // when one was asked last
	var order []Workload
	for _, p := range s.Proxies.Proxies() {
		if p.Proxy == nil || p.Proxy.Extensions || p.Proxy.Names || connected[p.ID] != nil {
			continue // the stream of an agent, or a second stream
		}
		c := s.known[p.ID]
		if c == nil {
			c = &counters{of: WorkloadOf(p.Proxy), name: p.Name + "." + p.Namespace}
		}
		connected[p.ID] = c
		other, has := longest[c.of]
		if !has {
			order = append(order, c.of)
		}
		if !has || c.turn.Before(connected[other].turn) {
			longest[c.of] = p.ID
		}
		asked[c.of] = later(asked[c.of], c.turn)
	}
	s.known = connected
	slices.SortFunc(order, func(a, b Workload) int { return cmp.Or(asked[a].Compare(asked[b]), a.compare(b)) })
	var out []string
	accounts := map[account]int{}
	for _, w := range order {
		of := account{w.Namespace, w.ServiceAccount}
		if accounts[of] >= maxOfAccount {
			continue
		}
		if accounts[of]++; len(out) == maxAsked {
			break
		}
		id := longest[w]
		connected[id].turn = s.Memory.now()
		out = append(out, id)
	}
	return out
}

// forgetGrowth forgets the last calls of a proxy that does not answer.
func (s *Scraper) forgetGrowth(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.known[id]; c != nil {
		c.grown = nil
	}
}

// learn takes a proxy's counters. A host was called if its counter has grown. The first answer of a proxy may have old calls:
// it makes hosts known, and proves no call of those that are.
func (s *Scraper) learn(id string, calls map[string]*traffic.Count, all services, now time.Time) {
	s.mu.Lock()
	c := s.known[id]
	if c == nil {
		s.mu.Unlock()
		return
	}
	var called, seen []model.Host
	grown := map[string]*traffic.Count{}
	for host, n := range calls {
		more := n.Since(c.calls[host])
		h := model.Host(host)
		switch {
		case more.Requests <= 0 || len(all[h]) == 0:
			continue
		case c.at.IsZero():
			seen = append(seen, h)
		default:
			called = append(called, h)
			grown[host] = more
		}
	}
	if c.grown = grown; c.at.IsZero() {
		c.grown = nil
	}
	c.over = max(now.Sub(c.at), time.Second)
	c.at, c.calls = now, calls
	s.mu.Unlock()
	s.Memory.Called(c.of, called)
	s.Memory.Seen(c.of, seen)
}

// usage is what the connected proxies of a workload use.
type usage struct {
	proxies  int    // connected
	measured int    // of them
	proxy    string // name.namespace of one, if possible of a measured one
	rates    map[model.Host]float64
	counts   map[model.Host]*Measured
}

// usages returns the usage of each workload. Its rates are the mean of its measured proxies, times the number of connected ones.
func (s *Scraper) usages() map[Workload]*usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[Workload]*usage{}
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		c := s.known[id]
		u := out[c.of]
		if u == nil {
			u = &usage{proxy: c.name, rates: map[model.Host]float64{}, counts: map[model.Host]*Measured{}}
			out[c.of] = u
		}
		u.proxies++
		if c.grown == nil {
			continue
		}
		if u.measured++; u.measured == 1 {
			u.proxy = c.name
		}
		for host, n := range c.grown {
			h := model.Host(host)
			u.rates[h] += n.Requests / c.over.Seconds()
			u.counts[h] = u.counts[h].with(measuredOf(n, c.over))
		}
	}
	for _, u := range out {
		for h := range u.rates {
			u.rates[h] *= float64(u.proxies) / float64(u.measured)
		}
	}
	return out
}

// named returns the workload of a connected proxy, by the name that users give it; zero: no such proxy is connected.
func (s *Scraper) named(name string) Workload {
	for _, p := range s.Proxies.Proxies() {
		if p.Proxy != nil && name != "" && (p.Name == name || p.Name+"."+p.Namespace == name || p.ID == name) {
			return WorkloadOf(p.Proxy)
		}
	}
	return Workload{}
}
