package dependencies

import (
	"cmp"
	"context"
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
	turn  time.Time // of the last question
	at    time.Time // of the last answer; zero: none
	calls map[string]float64
	rates map[string]float64 // requests for each second between the last two answers; nil: unknown
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
					s.forgetRates(id)
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
			c = &counters{of: WorkloadOf(p.Proxy)}
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

// forgetRates forgets the rates of a proxy that does not answer.
func (s *Scraper) forgetRates(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.known[id]; c != nil {
		c.rates = nil
	}
}

// learn takes a proxy's counters. A host was called if its counter has grown. The first answer of a proxy may have old calls:
// it makes hosts known, and proves no call of those that are.
func (s *Scraper) learn(id string, calls map[string]float64, all services, now time.Time) {
	s.mu.Lock()
	c := s.known[id]
	if c == nil {
		s.mu.Unlock()
		return
	}
	var grown, seen []model.Host
	rates := map[string]float64{}
	for host, n := range calls {
		before := c.calls[host]
		if n < before {
			before = 0 // the proxy has started again
		}
		h := model.Host(host)
		switch {
		case n <= before || len(all[h]) == 0:
			continue
		case c.at.IsZero():
			seen = append(seen, h)
		default:
			grown = append(grown, h)
		}
		if !c.at.IsZero() {
			rates[host] = (n - before) / max(now.Sub(c.at), time.Second).Seconds()
		}
	}
	if c.rates = rates; c.at.IsZero() {
		c.rates = nil
	}
	c.at, c.calls = now, calls
	s.mu.Unlock()
	s.Memory.Called(c.of, grown)
	s.Memory.Seen(c.of, seen)
}

// rate is an estimate for a workload.
type rate struct {
	proxies  int // connected
	measured int // of them
	hosts    map[model.Host]float64
}

// rates returns the rates of each workload: the mean of its measured proxies, times the number of connected ones.
func (s *Scraper) rates() map[Workload]*rate {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[Workload]*rate{}
	for _, c := range s.known {
		r := out[c.of]
		if r == nil {
			r = &rate{hosts: map[model.Host]float64{}}
			out[c.of] = r
		}
		r.proxies++
		if c.rates == nil {
			continue
		}
		r.measured++
		for h, n := range c.rates {
			r.hosts[model.Host(h)] += n
		}
	}
	for _, r := range out {
		for h := range r.hosts {
			r.hosts[h] *= float64(r.proxies) / float64(r.measured)
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
