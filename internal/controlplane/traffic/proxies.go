package traffic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// Agents are the agents of connected proxies. agents.Client implements it.
type Agents interface {
	// Metrics reads the metrics of a proxy whose names in Envoy match a regular expression.
	Metrics(ctx context.Context, proxy, matching string) ([]byte, error)
}

// Proxies lists the connected proxies. The xDS server implements it.
type Proxies interface{ Proxies() []server.ProxyState }

// Bounds of a measurement. Each continues where the last one ended, with the next proxies of more than maxAsked, or with those
// for which it had no time.
const (
	maxAsked   = 400
	concurrent = 4
)

// FromProxies returns a Meter that reads the metrics of connected proxies. Its Run must be called.
func FromProxies(p Proxies, a Agents) *Meter {
	return newMeter(SourceProxies, &scraper{proxies: p, agents: a, known: map[string]*history{}})
}

// scraper measures by scraping proxies. Only one goroutine uses it.
type scraper struct {
	proxies Proxies
	agents  Agents
	known   map[string]*history // by node ID
	next    int                 // where the next measurement begins
}

// history has the last two measurements of a proxy. Proxies that are connected and not measured yet have none.
type history struct {
	at     time.Time
	now    map[Call]*pair // counters
	rates  map[Call]*pair // nil: only one measurement, or the last request failed
	failed string         // the error of the last request
	partly string         // why calls of the last measurement are left out
}

func (s *scraper) forget() { s.known, s.next = map[string]*history{}, 0 }

func (s *scraper) measure(ctx context.Context) *Graph {
	all := s.connected()
	s.turn(ctx, all)
	g := &Graph{Complete: true, Proxies: Coverage{Connected: len(all)}}
	sum := map[Call]*pair{}
	for _, p := range all {
		h := s.known[p.id]
		if h.failed != "" {
			g.Proxies.Failed++
		}
		if why := cmp.Or(h.failed, h.partly); why != "" && len(g.Failures) < maxErrors {
			g.Failures = append(g.Failures, p.name+": "+why)
		}
		if h.now == nil {
			g.Complete = g.Complete && h.failed != ""
			continue
		}
		g.Proxies.Measured++
		g.Rated = g.Rated || h.rates != nil
		h.addTo(sum)
	}
	g.Rated = g.Rated || g.Proxies.Measured == 0
	g.Edges, g.LeftOut = edges(sum)
	return g
}

// addTo adds a proxy's rates. Without them its calls appear with their totals.
func (h *history) addTo(sum map[Call]*pair) {
	from := h.rates
	if from == nil {
		from = h.now
	}
	for call, p := range from {
		to := sum[call]
		if to == nil {
			to = &pair{}
			sum[call] = to
		}
		for _, server := range []bool{false, true} {
			numbers := *p.of(server)
			if numbers == nil {
				continue
			}
			if *to.of(server) == nil {
				*to.of(server) = &sums{}
			}
			if h.rates == nil {
				numbers = &sums{total: numbers.total}
			}
			(*to.of(server)).add(numbers)
		}
	}
}

// proxy is a connected proxy with an Envoy.
type proxy struct{ id, name string }

// connected returns the proxies, and forgets the others.
func (s *scraper) connected() []proxy {
	var out []proxy
	known := map[string]*history{}
	for _, p := range s.proxies.Proxies() {
		if p.Proxy != nil && (p.Proxy.Extensions || p.Proxy.Names) || known[p.ID] != nil {
			continue // a stream of an agent, or a second stream
		}
		h := s.known[p.ID]
		if h == nil {
			h = &history{}
		}
		known[p.ID] = h
		out = append(out, proxy{p.ID, p.Name + "." + p.Namespace})
	}
	s.known = known
	return out
}

// turn asks the proxies whose turn it is.
func (s *scraper) turn(ctx context.Context, all []proxy) {
	if len(all) == 0 {
		return
	}
	var list []proxy
	for i := range min(len(all), maxAsked) {
		list = append(list, all[(s.next+i)%len(all)])
	}
	s.next = (s.next + s.ask(ctx, list)) % len(all)
}

// ask scrapes proxies in order until ctx ends, and waits for their answers. It returns how many it asked.
func (s *scraper) ask(ctx context.Context, list []proxy) int {
	records := 0
	for _, h := range s.known {
		records += len(h.now)
	}
	var (
		mu      sync.Mutex // guards records and asked
		asked   int
		working sync.WaitGroup
	)
	next := func() (p proxy, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if asked == len(list) || ctx.Err() != nil {
			return p, false
		}
		asked++
		return list[asked-1], true
	}
	for range concurrent {
		working.Go(func() {
			for p, ok := next(); ok; p, ok = next() {
				h := s.known[p.id] // no other goroutine has this proxy
				text, err := s.agents.Metrics(ctx, p.id, inEnvoy)
				if err != nil && ctx.Err() != nil && h.rates != nil {
					continue // the measurement's time is over: its last rates count until its next turn
				}
				if err != nil {
					h.failed, h.rates = err.Error(), nil
					continue
				}
				mu.Lock()
				room := maxRecords - records + len(h.now)
				mu.Unlock()
				before := len(h.now)
				h.update(text, time.Now(), max(0, min(room, maxCalls)))
				mu.Lock()
				records += len(h.now) - before
				mu.Unlock()
			}
		})
	}
	working.Wait()
	return asked
}

// update reads the metrics of a proxy, with at most that many calls.
func (h *history) update(text []byte, at time.Time, most int) {
	now, leftOut := parse(text, most)
	h.failed, h.partly = "", ""
	switch {
	case leftOut && most < maxCalls:
		h.partly = fmt.Sprintf("the control plane keeps %d calls of all proxies: the rest is left out", maxRecords)
	case leftOut:
		h.partly = fmt.Sprintf("it calls more than %d others: the rest is left out", most)
	}
	if h.now != nil {
		h.rates = map[Call]*pair{}
		seconds := max(at.Sub(h.at), time.Millisecond).Seconds() // never 0
		for call, p := range now {
			out := &pair{}
			for _, server := range []bool{false, true} {
				numbers := *p.of(server)
				if numbers == nil {
					continue
				}
				var before *sums
				if then := h.now[call]; then != nil {
					before = *then.of(server)
				}
				rates := numbers.since(before, seconds)
				*out.of(server) = &rates
			}
			h.rates[call] = out
		}
	}
	h.at, h.now = at, now
}

// parse returns the counters by call.
func parse(text []byte, most int) (out map[Call]*pair, leftOut bool) {
	out = map[Call]*pair{}
	for line := range bytes.Lines(text) {
		if len(line) > maxLine || !bytes.HasPrefix(line, []byte("istio_")) {
			continue
		}
		metric, labels, value, ok := parseLine(strings.TrimSuffix(string(line), "\n"))
		if !ok {
			continue
		}
		call, server, ok := labels.call()
		if !ok {
			continue
		}
		p := out[call]
		if p == nil {
			if len(out) >= most {
				leftOut = true
				continue
			}
			p = &pair{}
			out[call.clone()] = p
		}
		if *p.of(server) == nil {
			*p.of(server) = &sums{}
		}
		(*p.of(server)).addSeries(metric, labels, value)
	}
	return out, leftOut
}
