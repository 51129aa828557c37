package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/lab/poll"
)

// Options are what a Fleet is told.
type Options struct {
	Address string // of the control plane
	// Joining bounds the proxies that connect at the same time, until they have all that
	// they ask for; 0: 500. They keep a server busy, and the memory here within bounds.
	Joining int
	// Backoff is how long a proxy waits before it connects again; 0: 50 ms.
	Backoff time.Duration
	// Sink, if any, gets each resource as it comes (name, encoded Any), from the proxies'
	// goroutines. It makes the fleet slow: for checks.
	Sink func(k Kind, name string, any []byte)
	// TLS, if any, is what a proxy of a namespace shows and trusts; else streams are in plain text.
	TLS func(namespace string) (*tls.Config, error)
}

// Fleet is a number of proxies that share a Catalog.
type Fleet struct {
	Catalog *Catalog
	Proxies []*Proxy

	opts    Options
	dialer  net.Dialer
	joining chan struct{}
	herd    atomic.Pointer[Round]
	bare    atomic.Bool // proxies ask for the probe alone
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	loops   *poll.Loops // that wait for streams in plain text; nil: their proxies' goroutines do

	mu   sync.Mutex    // guards open
	open chan struct{} // closed while proxies may connect
}

// NewFleet makes proxies. They connect when Start and Open were called.
func NewFleet(c *Catalog, opts Options, ids []Identity) *Fleet {
	if opts.Joining == 0 {
		opts.Joining = 500
	}
	if opts.Backoff == 0 {
		opts.Backoff = 50 * time.Millisecond
	}
	f := &Fleet{Catalog: c, opts: opts, joining: make(chan struct{}, opts.Joining), open: make(chan struct{})}
	for i, id := range ids {
		p := &Proxy{Identity: id, fleet: f, index: i}
		p.handle = p.take
		f.Proxies = append(f.Proxies, p)
	}
	return f
}

// Start starts the proxies' goroutines. Stop, or the end of ctx, ends them.
func (f *Fleet) Start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.loops = poll.Start()
	for _, p := range f.Proxies {
		f.ended.Go(func() { p.run(ctx) })
	}
}

// Stop disconnects all proxies and returns when their goroutines have ended.
func (f *Fleet) Stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.ended.Wait()
	f.loops.Stop()
	f.loops = nil
}

// loop is the one that is to wait for a new stream; nil: its proxy's goroutine is.
func (f *Fleet) loop() *poll.Loop {
	if f.loops == nil || f.opts.TLS != nil {
		return nil
	}
	return f.loops.Next()
}

// Open lets the proxies connect. The round tells when each of them has all that it asks
// for, or on connecting again, that the server has read what it holds.
func (f *Fleet) Open() *Round {
	r := newRound(f, len(f.Proxies), nil)
	for _, p := range f.Proxies {
		p.lastError.Store(nil)
	}
	f.herd.Store(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.open)
	return r
}

// OpenBare lets proxies that Shut has kept out connect, and ask for nothing but the
// probe: the least that a connection takes. They forget what they held.
func (f *Fleet) OpenBare() *Round {
	f.bare.Store(true)
	return f.Open()
}

// Shut keeps proxies that lose their stream from connecting until Open.
func (f *Fleet) Shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = make(chan struct{})
}

// dial makes the connection of a proxy of a namespace.
func (f *Fleet) dial(ctx context.Context, namespace string) (net.Conn, error) {
	c, err := f.dialer.DialContext(ctx, "tcp", f.opts.Address)
	if err != nil || f.opts.TLS == nil {
		return c, err
	}
	config, err := f.opts.TLS(namespace)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return secure, nil
}

func (f *Fleet) waitOpen(ctx context.Context) bool {
	f.mu.Lock()
	open := f.open
	f.mu.Unlock()
	select {
	case <-open:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Expect begins a round: it is over at a proxy once it has ACKed all wants. concerned,
// by the proxies' indices, says who is waited for; nil: all.
func (f *Fleet) Expect(concerned []bool, wants ...Want) *Round {
	r := newRound(f, len(f.Proxies), concerned)
	f.Catalog.begin(r, wants)
	return r
}

// Forget ends the round that Expect began.
func (f *Fleet) Forget() { f.Catalog.end() }

// Traffic is what a proxy has received and sent so far.
type Traffic struct {
	Messages, Bytes, Sent int64
	Connects              int64
}

// Sub is what was added since earlier.
func (t Traffic) Sub(earlier Traffic) Traffic {
	return Traffic{t.Messages - earlier.Messages, t.Bytes - earlier.Bytes, t.Sent - earlier.Sent, t.Connects - earlier.Connects}
}

// Traffic is that of all proxies, by their indices.
func (f *Fleet) Traffic() []Traffic {
	out := make([]Traffic, len(f.Proxies))
	for i, p := range f.Proxies {
		out[i] = Traffic{p.messages.Load(), p.bytes.Load(), p.sent.Load(), p.connects.Load()}
	}
	return out
}

// Total adds up.
func Total(list []Traffic) (sum Traffic) {
	for _, t := range list {
		sum.Messages, sum.Bytes = sum.Messages+t.Messages, sum.Bytes+t.Bytes
		sum.Sent, sum.Connects = sum.Sent+t.Sent, sum.Connects+t.Connects
	}
	return sum
}

// Trouble tells how the last streams that ended did; nil where none has.
func (f *Fleet) Trouble() error {
	n, last := 0, ""
	for _, p := range f.Proxies {
		if e := p.lastError.Load(); e != nil {
			n, last = n+1, fmt.Sprintf("%s: %s", p.Name, *e)
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d proxies have lost a stream; the last: %s", n, len(f.Proxies), last)
}

// Hold has a proxy take no more messages; the returned function lets it go on.
func (f *Fleet) Hold(i int) (resume func()) {
	hold := make(chan struct{})
	f.Proxies[i].hold.Store(&hold)
	return func() {
		f.Proxies[i].hold.Store(nil)
		close(hold)
	}
}

// Stall has a proxy lose its stream and all that it holds, connect again, ask, and not read the
// answer, of which next to nothing fits into its socket; the returned function lets it go on.
func (f *Fleet) Stall(i int) (resume func()) {
	resume = f.Hold(i)
	f.Proxies[i].disconnect()
	return resume
}

// Disconnect ends the streams that there are. Proxies connect again, unless Shut was called.
func (f *Fleet) Disconnect() {
	for _, p := range f.Proxies {
		p.disconnect()
	}
}
