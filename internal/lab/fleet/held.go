package fleet

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// Held is one content of a cluster's endpoints, and when proxies had it.
type Held struct {
	Cluster   string
	Addresses []netip.Addr // that accept requests (a draining one does not), ascending
	Spans     []Span       // in order of time; they do not overlap

	holders int // proxies that have it now
}

// Span is the time from one proxy's ACK of a content to the ACK with which the last proxy replaced it. To is zero while
// a proxy has it.
type Span struct{ From, To time.Time }

// follower knows all contents of endpoints that proxies were sent.
type follower struct {
	mu   sync.Mutex // guards list and its elements, except Cluster and Addresses
	list []*Held
}

// Follow makes the catalog record which endpoints proxies have, and when. Call it before any proxy connects. Each
// content is decoded once.
func (c *Catalog) Follow() { c.follower = &follower{} }

// Held returns all contents of endpoints so far, in the order of arrival.
func (c *Catalog) Held() []Held {
	c.follower.mu.Lock()
	defer c.follower.mu.Unlock()
	out := make([]Held, len(c.follower.list))
	for i, h := range c.follower.list {
		out[i] = *h
		out[i].Spans = slices.Clone(h.Spans)
	}
	return out
}

func (f *follower) learn(in *received) *Held {
	h := &Held{Cluster: string(in.name), Addresses: addressesOf(anyValue(in.any))}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, h)
	return h
}

// addressesOf decodes endpoints; invalid ones have no addresses.
func addressesOf(value []byte) (out []netip.Addr) {
	var cla endpointv3.ClusterLoadAssignment
	if proto.Unmarshal(value, &cla) != nil {
		return nil
	}
	for _, l := range cla.Endpoints {
		for _, e := range l.LbEndpoints {
			a, err := netip.ParseAddr(e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			if err == nil && takesRequests(e.HealthStatus) {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func takesRequests(s corev3.HealthStatus) bool {
	return s == corev3.HealthStatus_UNKNOWN || s == corev3.HealthStatus_HEALTHY || s == corev3.HealthStatus_DEGRADED
}

// move records that a proxy has one content in place of another; nil: none.
func (f *follower) move(from, to *Held, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from == to {
		return
	}
	if from != nil {
		if from.holders--; from.holders == 0 {
			from.Spans[len(from.Spans)-1].To = now
		}
	}
	if to != nil {
		if to.holders++; to.holders == 1 {
			to.Spans = append(to.Spans, Span{From: now})
		}
	}
}

// following is what one proxy has reported to the follower. Only the proxy's goroutine uses it.
type following struct {
	acked   map[string]*Held // by cluster
	pending []resolved       // whose ACKs are not written yet
}

// note stores the endpoints of a response until its ACK is written. The removal of a cluster ends its endpoints.
func (g *following) note(k Kind, list []resolved) {
	for _, r := range list {
		if k == EDS || k == CDS && r.version == nil {
			g.pending = append(g.pending, r)
		}
	}
}

// tell reports that the ACKs are written.
func (g *following) tell(f *follower) {
	if len(g.pending) == 0 {
		return
	}
	if g.acked == nil {
		g.acked = map[string]*Held{}
	}
	now := time.Now()
	for _, r := range g.pending {
		var next *Held
		if r.version != nil {
			next = r.version.held
		}
		f.move(g.acked[r.name.text], next, now)
		g.acked[r.name.text] = next
	}
	clear(g.pending)
	g.pending = g.pending[:0]
}

// Endpoints returns the proxy's addresses that accept requests, by cluster. Its catalog must follow endpoints.
func (p *Proxy) Endpoints() map[string][]netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.fleet.Catalog
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := map[string][]netip.Addr{}
	for id, h := range p.state.held[EDS] {
		if h.has() {
			n := c.list[EDS][id]
			out[n.text] = n.versions[h-1].held.Addresses
		}
	}
	return out
}
