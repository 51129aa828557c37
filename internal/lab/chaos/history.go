package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Graces: for how long after the last proxy's ACK a request may still meet the old state.
const (
	// grace covers Envoy's workers, which take an update over after the main thread has ACKed it, on a busy machine.
	grace = time.Second
	// drainTime is how long sidecars keep connections that began before a change of their listener.
	drainTime  = 3 * time.Second
	drainGrace = drainTime + 2*time.Second
)

// version is one state of an object.
type version struct {
	number  int // of the write, in the whole run
	state   string
	written time.Time // before the write began
	acked   time.Time // when all proxies were known to have it; zero: not yet
}

// window is a time in which a fault disturbed a part of the mesh. A zero end means that it goes on.
type window struct{ from, to time.Time }

// history knows what was written and ACKed when, and which proxies faults disturbed. It is safe for concurrent use.
type history struct {
	// unordered means that a control plane may see a route before the subsets that it names: an API server sends each kind on a
	// separate watch. Until it sees both, the route's cluster does not exist.
	unordered bool

	mu        sync.Mutex // guards the fields below
	numbers   int
	objects   map[string][]version
	disturbed map[string][]window // by proxy
}

func newHistory() *history {
	return &history{objects: map[string][]version{}, disturbed: map[string][]window{}}
}

// begin records that an object is about to be written, and returns the number of the write.
func (h *history) begin(object, state string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.numbers++
	h.objects[object] = append(h.objects[object], version{number: h.numbers, state: state, written: time.Now()})
	return h.numbers
}

// ack records that all proxies have a write, and thus none before it.
func (h *history) ack(object string, number int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.objects[object]
	for i := range list {
		if list[i].number == number && list[i].acked.IsZero() {
			list[i].acked = at
		}
	}
}

// newest returns the last version of an object.
func (h *history) newest(object string) version {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.objects[object]
	if len(list) == 0 {
		return version{}
	}
	return list[len(list)-1]
}

// before returns the version before a write.
func (h *history) before(object string, number int) version {
	h.mu.Lock()
	defer h.mu.Unlock()
	var last version
	for _, v := range h.objects[object] {
		if v.number == number {
			break
		}
		last = v
	}
	return last
}

// visible returns the states of an object that a request between two times may have met.
func (h *history) visible(object string, from, to time.Time, grace time.Duration) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.objects[object]
	for i := len(list) - 1; i >= 0; i-- {
		v := list[i]
		if v.written.After(to) {
			continue
		}
		if !slices.Contains(out, v.state) {
			out = append(out, v.state)
		}
		if !v.acked.IsZero() && v.acked.Add(grace).Before(from) {
			break // no proxy has an older one
		}
	}
	return out
}

// disturb records that a fault disturbs a proxy from now on. The returned function records the end.
func (h *history) disturb(proxy string) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.disturbed[proxy] = append(h.disturbed[proxy], window{from: time.Now()})
	i := len(h.disturbed[proxy]) - 1
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.disturbed[proxy][i].to = time.Now()
	}
}

// wasDisturbed reports whether a fault has disturbed a proxy since a time.
func (h *history) wasDisturbed(proxy string, since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.disturbed[proxy], func(w window) bool { return w.to.IsZero() || w.to.Add(grace).After(since) })
}

// isDisturbed reports whether a fault disturbed the proxies of a call between two times.
func (h *history) isDisturbed(c call, from, to time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for proxy, list := range h.disturbed {
		if proxy != c.Client && serviceOf(proxy) != serviceOf(c.Service) {
			continue
		}
		for _, w := range list {
			if w.from.Before(to) && (w.to.IsZero() || w.to.Add(grace).After(from)) {
				return true
			}
		}
	}
	return false
}

// isCut reports whether a server's sidecar may have closed a connection at a time, because it was drained for as long as it
// may be after a change of the listener. An idle connection of HTTP/2 is told only with its next response that it is drained,
// so that a request may begin on it just before its end.
func (h *history) isCut(c call, at time.Time) bool {
	if c.opens() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range c.dependsOn() {
		list := h.objects[d.object]
		for i, v := range list {
			gone := firstACK(list[i:])
			begun := !v.written.Add(drainTime - grace).After(at)
			over := !gone.IsZero() && gone.Add(drainTime+grace).Before(at)
			if d.inbound && begun && !over {
				return true
			}
		}
	}
	return false
}

// firstACK returns when all proxies first had one of these versions; zero: they have none of them yet. A version that is
// written again before its ACK never gets one.
func firstACK(list []version) (first time.Time) {
	for _, v := range list {
		if !v.acked.IsZero() && (first.IsZero() || v.acked.Before(first)) {
			first = v.acked
		}
	}
	return first
}

// allowed returns what a call between two times may have answered.
func (h *history) allowed(c call, from, to time.Time) []string {
	worlds := []world{{}}
	for _, d := range c.dependsOn() {
		g := grace
		if d.inbound && !c.opens() {
			g = drainGrace
		}
		states := h.visible(d.object, from, to, g)
		next := make([]world, 0, len(worlds)*len(states))
		for _, w := range worlds {
			for _, s := range states {
				changed := w
				d.set(&changed, s)
				next = append(next, changed)
			}
		}
		worlds = next
	}
	var out []string
	for _, w := range worlds {
		out = append(out, c.answers(w)...)
	}
	if routes := "route/" + c.Service; h.unordered && c.Proto != protoTCP && c.Proto != plainCall && len(h.visible(routes, from, to, grace)) > 1 {
		out = append(out, unrouted)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Verdicts of an answer.
type verdict int

const (
	right     verdict = iota // it is one of those that are allowed
	drained                  // its connection may have ended with the drain of a listener
	excused                  // a fault disturbed one of its proxies
	violating                // none of these
)

// judge returns the verdict of an answer, and why it is a violation.
func (h *history) judge(c call, from, to time.Time, answer string) (v verdict, why string) {
	allowed := h.allowed(c, from, to)
	unanswered := answer == failed || answer == unrouted || answer == denied && c.Proto == protoTCP || answer == refused && c.Proto == plainCall
	switch {
	case slices.Contains(allowed, answer):
		return right, ""
	case unanswered && h.isDisturbed(c, from, to):
		return excused, ""
	case answer == failed && h.isCut(c, to):
		return drained, ""
	}
	return violating, fmt.Sprintf("answered %s; every state in force at some moment of it gives %s", answer, strings.Join(allowed, " or "))
}
