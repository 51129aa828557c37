package rollout

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

// registry records the ready addresses of services in the API server, and the addresses that stopped being ready.
type registry struct {
	mu     sync.Mutex                // guards all below
	slices map[string]meshkube.Slice // by name
	events int
	deaths []*death
	open   map[deathKey]*death // whose address is not ready again
}

type deathKey struct {
	service string
	address netip.Addr
}

// death is an address that stopped being ready.
type death struct {
	deathKey
	at   time.Time
	back time.Time // when another pod with this address was ready; zero: none was
}

func newRegistry() *registry {
	return &registry{slices: map[string]meshkube.Slice{}, open: map[deathKey]*death{}}
}

// take records the content of an EndpointSlice. An address that is in another slice of its service is not dead.
func (g *registry) take(s meshkube.Slice, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events++
	before := g.readyOf(s.Service)
	g.slices[s.Name] = s
	after := g.readyOf(s.Service)
	for a := range before {
		if !after[a] {
			d := &death{deathKey: deathKey{s.Service, a}, at: now}
			g.deaths, g.open[d.deathKey] = append(g.deaths, d), d
		}
	}
	for a := range after {
		if d := g.open[deathKey{s.Service, a}]; d != nil && !before[a] {
			d.back = now
			delete(g.open, d.deathKey)
		}
	}
}

// readyOf needs mu.
func (g *registry) readyOf(service string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, s := range g.slices {
		if s.Service == service {
			for _, a := range s.Ready {
				out[a] = true
			}
		}
	}
	return out
}

// ready returns a service's ready addresses, ascending.
func (g *registry) ready(service string) []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.readyOf(service)), netip.Addr.Compare)
}

// history returns the number of slices so far, and the deaths.
func (g *registry) history() (events int, deaths []death) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.deaths {
		deaths = append(deaths, *d)
	}
	return g.events, deaths
}

// known is how long some proxy still sent requests to a dead address.
type known struct{ from, to time.Time } // to is zero: to the end

// stillKnown follows each death to the moment when the last proxy has ACKed endpoints
// without it. Addresses that came back before that are left out.
func stillKnown(deaths []death, held []fleet.Held) (out []known) {
	spans := spansOf(held)
	for _, d := range deaths {
		end := endOf(d.at, spans[deathKey{meshfiles.ClusterName(d.service), d.address}])
		if d.back.IsZero() || !end.IsZero() && !end.After(d.back) {
			out = append(out, known{d.at, end})
		}
	}
	return out
}

// spansOf returns when each address of each cluster was held, in the order of time.
func spansOf(held []fleet.Held) map[deathKey][]fleet.Span {
	out := map[deathKey][]fleet.Span{}
	for _, h := range held {
		for _, a := range h.Addresses {
			k := deathKey{h.Cluster, a}
			out[k] = append(out[k], h.Spans...)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b fleet.Span) int { return cmp.Compare(a.From.UnixNano(), b.From.UnixNano()) })
	}
	return out
}

// endOf returns the first time from at on that no span covers, or zero if the last span is open. A proxy that
// replaces one content by the next ends a span when it begins the other.
func endOf(at time.Time, spans []fleet.Span) time.Time {
	for _, s := range spans {
		switch {
		case s.From.After(at):
			return at
		case s.To.IsZero():
			return time.Time{}
		case s.To.After(at):
			at = s.To
		}
	}
	return at
}

// staleness returns how long proxies knew dead addresses, in milliseconds, and how many they still know.
func staleness(list []known) (took []float64, left int) {
	for _, k := range list {
		if k.to.IsZero() {
			left++
		} else {
			took = append(took, results.Millis(k.to.Sub(k.from)))
		}
	}
	return took, left
}

// knownOver returns how many dead addresses proxies knew, over time.
func knownOver(list []known, begun time.Time) (points [][2]float64) {
	type step struct {
		at time.Duration
		by float64
	}
	var steps []step
	for _, k := range list {
		if steps = append(steps, step{k.from.Sub(begun), 1}); !k.to.IsZero() {
			steps = append(steps, step{k.to.Sub(begun), -1})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	n := 0.0
	for _, s := range steps {
		n += s.by
		points = append(points, [2]float64{s.at.Seconds(), n})
	}
	return points
}
