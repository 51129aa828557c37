package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// Probe is the name of endpoints that do not exist. A proxy that reconnects requests them last: the answer
// shows that the server has read all earlier requests.
const Probe = "moonsail-lab-probe"

// Proxy is one simulated sidecar.
type Proxy struct {
	// Read-only.
	Identity
	fleet *Fleet
	index int

	// Any goroutine may read these.
	messages, bytes atomic.Int64 // of responses
	sent            atomic.Int64 // bytes of requests
	connects        atomic.Int64
	lastError       atomic.Pointer[string]
	socket          atomic.Pointer[socket] // of the newest stream

	// Any goroutine may set these.
	hold atomic.Pointer[chan struct{}] // the proxy does not read until it is closed
	tape atomic.Pointer[func(Kind, []byte)]

	// Only its goroutine uses these, or, while a loop waits for its stream, the loop.
	join    func() // passes its place among joining proxies to the next
	conn    *conn
	handle  func([]byte) error // take
	failure error              // why a stream in a loop has ended
	following

	mu    sync.Mutex // guards the fields below
	state state
	goals goals
}

// Tape makes the proxy call f with each response of a known type; nil: no longer. The proxy's goroutine calls it, and b
// is valid only during the call.
func (p *Proxy) Tape(f func(k Kind, b []byte)) {
	if f == nil {
		p.tape.Store(nil)
		return
	}
	p.tape.Store(&f)
}

// run connects and reconnects until ctx ends.
func (p *Proxy) run(ctx context.Context) {
	for p.fleet.waitOpen(ctx) {
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		text := err.Error()
		p.lastError.Store(&text)
		_ = clock.Sleep(ctx, p.fleet.opts.Backoff)
	}
}

// connect runs one stream.
func (p *Proxy) connect(ctx context.Context) error {
	select {
	case p.fleet.joining <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.join = sync.OnceFunc(func() { <-p.fleet.joining })
	defer p.join()
	c, err := p.fleet.dial(ctx, p.Namespace)
	if err != nil {
		return err
	}
	s := &socket{conn: c, over: make(chan struct{})}
	defer s.end()
	p.socket.Store(s)
	defer context.AfterFunc(ctx, s.end)()
	if p.conn, err = newConn(c, *p.fleet.address.Load()); err != nil {
		return err
	}
	defer func() { p.conn.release(); p.conn = nil }()
	if p.hold.Load() != nil {
		p.lose(c)
	}
	if err := p.begin(); err != nil {
		return err
	}
	p.connects.Add(1)
	if l := p.fleet.loop(); l != nil && s.take() {
		return p.follow(l, s.polled)
	}
	return p.read(c)
}

// stalledBuffer is the socket's buffer, in bytes, of a proxy that does not read.
const stalledBuffer = 4 << 10

// lose drops all resources, and makes the socket's buffer small.
func (p *Proxy) lose(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if plain, ok := c.(*net.TCPConn); ok {
		_ = plain.SetReadBuffer(stalledBuffer) // otherwise more fits into it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state{}
}

// pause waits while the proxy is held. It returns an error if the stream is ended here meanwhile.
func (p *Proxy) pause() error {
	hold := p.hold.Load()
	if hold == nil {
		return nil
	}
	select {
	case <-*hold:
		return nil
	case <-p.socket.Load().over:
		return net.ErrClosed
	}
}

func (p *Proxy) send(r request) {
	p.sent.Add(int64(len(r)))
	p.conn.send(r)
}

// flush writes the ACKs, and then reports to the round.
func (p *Proxy) flush() error {
	if err := p.conn.flush(); err != nil {
		return err
	}
	p.tell(p.fleet.Catalog.follower)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goals.all() {
		p.goals.round.Record(p.index)
		p.goals.round = nil
	}
	if p.state.ready && !p.state.reported {
		p.state.reported = true
		p.join()
		if h := p.fleet.opening.Load(); h != nil {
			h.Record(p.index)
		}
	}
	return nil
}

// begin sends the first requests of a stream: for clusters, or with all versions that the proxy has.
func (p *Proxy) begin() error {
	node, err := p.node()
	if err != nil {
		return err
	}
	p.mu.Lock()
	first := request(nil).bytes(fieldNode, node)
	if p.fleet.bare.Load() {
		p.state.forget()
	}
	for _, r := range p.state.reconnect(p.fleet.Catalog) {
		if first != nil {
			p.send(append(first, r...))
			first = nil
		} else {
			p.send(r)
		}
		giveBack((*[]byte)(&r))
	}
	p.mu.Unlock()
	return p.conn.flush()
}

// take processes a response.
func (p *Proxy) take(b []byte) error {
	p.messages.Add(1)
	p.bytes.Add(int64(len(b) + prefixLen))
	room := scratches.Get().(*scratch)
	defer room.put()
	resp := &room.resp
	if !resp.parse(b) {
		return fmt.Errorf("cannot decode a response of %d bytes as DeltaDiscoveryResponse", len(b))
	}
	if !resp.known {
		return nil
	}
	p.show(resp, b)
	list, round := p.fleet.Catalog.resolve(resp.kind, resp.resources, room.list[:0])
	room.list = list
	if p.fleet.Catalog.follower != nil {
		p.note(resp.kind, list)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if round != nil && round.fleet == p.fleet && round != p.goals.round && round.at[p.index].Load() == 0 {
		p.goals.begin(round)
	}
	for i := range list {
		p.goals.reach(list[i].goal)
	}
	room.requests = p.state.apply(p.fleet.Catalog, resp.kind, list, room.requests[:0])
	for _, r := range room.requests {
		p.send(r)
	}
	p.sent.Add(p.conn.ack(resp.kind, resp.nonce)) // it comes last, as in Envoy
	return nil
}

// show passes a response to Tape and Sink.
func (p *Proxy) show(resp *response, b []byte) {
	if tape := p.tape.Load(); tape != nil {
		(*tape)(resp.kind, b)
	}
	if p.fleet.opts.Sink == nil {
		return
	}
	for _, r := range resp.resources {
		if !r.removed {
			p.fleet.opts.Sink(resp.kind, string(r.name), r.any)
		}
	}
}

// scratch is memory for one response. Idle proxies have none.
type scratch struct {
	resp     response
	list     []resolved
	requests []request
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// put returns a scratch, without its references.
func (s *scratch) put() {
	clear(s.resp.resources)
	clear(s.list)
	clear(s.requests)
	s.resp.nonce = nil
	scratches.Put(s)
}
