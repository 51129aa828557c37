package propagation

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
)

// registry is which addresses of services are ready, as the API server says, and which
// were and are no longer.
type registry struct {
	mu     sync.Mutex                // guards all below
	slices map[string]meshkube.Slice // by name
	events int
	deaths []*death
	open   map[deathKey]*death // whose address has not come back
}

type deathKey struct {
	service string
	address netip.Addr
}

// death is an address that stopped being ready.
type death struct {
	deathKey
	at   time.Time
	back time.Time // when it was ready again: another pod has it; zero: it was not
}

func newRegistry() *registry {
	return &registry{slices: map[string]meshkube.Slice{}, open: map[deathKey]*death{}}
}

// take notes what an EndpointSlice says now. An address that is still in another slice of
// its service is not dead.
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

// readyOf is called with the lock.
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

// ready are a service's addresses now, ascending.
func (g *registry) ready(service string) []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.readyOf(service)), netip.Addr.Compare)
}

// history is how many slices came so far, and the deaths.
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

// spansOf is when each address of each cluster was held, in the order of time.
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

// endOf is the first moment from at on when no span holds; zero where there is none. A
// proxy that goes from one content to the next ends a span when it begins the other.
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

// staleness is how long dead addresses were known, in milliseconds, and how many still are.
func staleness(list []known) (took []float64, left int) {
	for _, k := range list {
		if k.to.IsZero() {
			left++
		} else {
			took = append(took, millis(k.to.Sub(k.from)))
		}
	}
	return took, left
}

// knownOver is how many dead addresses were known from each moment on.
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
