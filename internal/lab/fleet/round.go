package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

// Want is one resource that a change must bring to a proxy.
type Want struct {
	Kind Kind
	Name string
	// Gone waits for the removal. Otherwise the round waits for a version that no proxy had before and that Accept
	// accepts; without Accept any new version counts. Accept gets the encoded google.protobuf.Any, once for each
	// version.
	Gone   bool
	Accept func(any []byte) bool
	// Alternative makes this Want and the one before it alternatives, for example a virtual host by VHDS or in its
	// route configuration. A round has at most one Want for each name.
	Alternative bool
}

// epoch is a point on the monotonic clock.
var epoch = time.Now()

// want is a Want in the catalog.
type want struct {
	goal   goal
	gone   bool
	accept func([]byte) bool
}

// goal is a part of a round, counted from 1; 0: none.
type goal int32

// goals are the parts of a round that a proxy has reached.
type goals struct {
	round *Round
	bits  []uint64
	n     int
}

func (g *goals) begin(r *Round) {
	g.round, g.n = r, 0
	g.bits = append(g.bits[:0], make([]uint64, (r.goals+63)/64)...)
}

func (g *goals) reach(x goal) {
	if g.round == nil || x == 0 {
		return
	}
	word, bit := &g.bits[(x-1)/64], uint64(1)<<((x-1)%64)
	if *word&bit == 0 {
		*word |= bit
		g.n++
	}
}

// all reports whether the round is over for the proxy.
func (g *goals) all() bool { return g.round != nil && g.n == g.round.goals }

// Round measures when something happens at each of many proxies.
type Round struct {
	fleet     *Fleet         // whose proxies are measured; nil: none
	goals     int            // that a proxy must reach
	concerned []bool         // by the proxy's index; nil: all
	start     atomic.Int64   // nanoseconds after epoch
	at        []atomic.Int64 // nanoseconds after start; 0: not yet
	left      atomic.Int64
	done      chan struct{}
	once      sync.Once
}

// NewRound returns a round of n clients that are not proxies. Their owner calls Record.
func NewRound(n int) *Round { return newRound(nil, n, nil) }

func newRound(f *Fleet, n int, concerned []bool) *Round {
	r := &Round{fleet: f, concerned: concerned, at: make([]atomic.Int64, n), done: make(chan struct{})}
	r.Restart()
	left := n
	for _, c := range concerned {
		if !c {
			left--
		}
	}
	if r.left.Store(int64(left)); left == 0 {
		r.once.Do(func() { close(r.done) })
	}
	return r
}

// Record notes that proxy i is done.
func (r *Round) Record(i int) {
	if !r.at[i].CompareAndSwap(0, max(1, int64(time.Since(epoch))-r.start.Load())) {
		return
	}
	if (r.concerned == nil || r.concerned[i]) && r.left.Add(-1) == 0 {
		r.once.Do(func() { close(r.done) })
	}
}

// Restart sets the beginning of the clock to now. It must come before the cause.
func (r *Round) Restart() { r.start.Store(int64(time.Since(epoch))) }

// Start is the beginning of the clock.
func (r *Round) Start() time.Time { return epoch.Add(time.Duration(r.start.Load())) }

// Done is closed when all concerned proxies are done.
func (r *Round) Done() <-chan struct{} { return r.done }

// Left returns the number of concerned proxies that are not done.
func (r *Round) Left() int { return int(r.left.Load()) }

// Latencies returns the latencies of the concerned proxies that are done, in no order.
func (r *Round) Latencies() []time.Duration {
	out := make([]time.Duration, 0, len(r.at))
	for i := range r.at {
		if at := r.at[i].Load(); at > 0 && (r.concerned == nil || r.concerned[i]) {
			out = append(out, time.Duration(at))
		}
	}
	return out
}

// begin makes r the round that the catalog's proxies report to.
func (c *Catalog) begin(r *Round, wants []Want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
	c.round = r
	for _, w := range wants {
		if r.goals == 0 || !w.Alternative {
			r.goals++
		}
		c.nameOf(w.Kind, w.Name).want = &want{goal(r.goals), w.Gone, w.Accept} //nolint:gosec // wants are few
	}
}

// end forgets the round.
func (c *Catalog) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

func (c *Catalog) drop() {
	if c.round == nil {
		return
	}
	for k := range Kinds {
		for _, n := range c.list[k] {
			n.want = nil
		}
	}
	c.round = nil
}

// goalGone is what the removal of a name reaches.
func (n *name) goalGone() goal {
	if n.want == nil || !n.want.gone {
		return 0
	}
	return n.want.goal
}

// goalAny is what any version of a name reaches.
func (n *name) goalAny() goal {
	if n.want == nil || n.want.gone || n.want.accept != nil {
		return 0
	}
	return n.want.goal
}
