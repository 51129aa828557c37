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

// Options configure a Fleet.
type Options struct {
	Address string // of the control plane
	// Joining limits how many proxies connect at the same time, until they have all that they subscribed to; 0: 500.
	// That many keep a server busy and limit the memory of this process.
	Joining int
	// Backoff is the pause of a proxy before it reconnects; 0: 50 ms.
	Backoff time.Duration
	// Sink, if set, is called by the proxies' goroutines with each resource (name, encoded Any). It makes the fleet
	// slow and is meant for checks.
	Sink func(k Kind, name string, any []byte)
	// TLS, if set, returns the TLS configuration of proxies in a namespace. Otherwise streams are in plain text.
	TLS func(namespace string) (*tls.Config, error)
}

// Fleet is a number of proxies that share a Catalog.
type Fleet struct {
	Catalog *Catalog
	Proxies []*Proxy

	opts    Options
	address atomic.Pointer[string] // of the control plane
	dialer  net.Dialer
	joining chan struct{}
	opening atomic.Pointer[Round]
	bare    atomic.Bool // proxies subscribe to the probe only
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	loops   *poll.Loops // wait for streams in plain text; nil: the proxies' goroutines do

	mu   sync.Mutex    // guards open
	open chan struct{} // closed while proxies may connect
}

// NewFleet returns proxies, which connect after Start and Open.
func NewFleet(c *Catalog, opts Options, ids []Identity) *Fleet {
	if opts.Joining == 0 {
		opts.Joining = 500
	}
	if opts.Backoff == 0 {
		opts.Backoff = 50 * time.Millisecond
	}
	f := &Fleet{Catalog: c, opts: opts, joining: make(chan struct{}, opts.Joining), open: make(chan struct{})}
	f.Redirect(opts.Address)
	for i, id := range ids {
		p := &Proxy{Identity: id, fleet: f, index: i}
		p.handle = p.take
		f.Proxies = append(f.Proxies, p)
	}
	return f
}

// Redirect makes proxies connect to another control plane from now on. Open streams stay.
func (f *Fleet) Redirect(address string) { f.address.Store(&address) }

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

// loop returns the loop for a new stream; nil: its proxy's goroutine waits.
func (f *Fleet) loop() *poll.Loop {
	if f.loops == nil || f.opts.TLS != nil {
		return nil
	}
	return f.loops.Next()
}

// Open lets the proxies connect. The round ends for a proxy when it has all that it subscribed to, or after a reconnect
// when the server has read the versions that it has.
func (f *Fleet) Open() *Round {
	r := newRound(f, len(f.Proxies), nil)
	for _, p := range f.Proxies {
		p.lastError.Store(nil)
	}
	f.opening.Store(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.open)
	return r
}

// OpenBare lets proxies connect after Shut. They subscribe to the probe only, which is the least cost of a connection, and
// forget their resources.
func (f *Fleet) OpenBare() *Round {
	f.bare.Store(true)
	return f.Open()
}

// Shut stops proxies from reconnecting until Open.
func (f *Fleet) Shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = make(chan struct{})
}

// dial opens the connection of a proxy of a namespace.
func (f *Fleet) dial(ctx context.Context, namespace string) (net.Conn, error) {
	c, err := f.dialer.DialContext(ctx, "tcp", *f.address.Load())
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

// Expect begins a round that ends for a proxy when it has ACKed all wants. concerned selects proxies by index; nil: all.
func (f *Fleet) Expect(concerned []bool, wants ...Want) *Round {
	r := newRound(f, len(f.Proxies), concerned)
	f.Catalog.begin(r, wants)
	return r
}

// Forget ends the round that Expect began.
func (f *Fleet) Forget() { f.Catalog.end() }

// Traffic counts what a proxy has received and sent so far.
type Traffic struct {
	Messages, Bytes, Sent int64
	Connects              int64
}

// Sub returns the difference to an earlier value.
func (t Traffic) Sub(earlier Traffic) Traffic {
	return Traffic{t.Messages - earlier.Messages, t.Bytes - earlier.Bytes, t.Sent - earlier.Sent, t.Connects - earlier.Connects}
}

// Traffic returns the traffic of all proxies, by index.
func (f *Fleet) Traffic() []Traffic {
	out := make([]Traffic, len(f.Proxies))
	for i, p := range f.Proxies {
		out[i] = Traffic{p.messages.Load(), p.bytes.Load(), p.sent.Load(), p.connects.Load()}
	}
	return out
}

// Total returns the sum.
func Total(list []Traffic) (sum Traffic) {
	for _, t := range list {
		sum.Messages, sum.Bytes = sum.Messages+t.Messages, sum.Bytes+t.Bytes
		sum.Sent, sum.Connects = sum.Sent+t.Sent, sum.Connects+t.Connects
	}
	return sum
}

// Trouble returns the errors with which the last streams ended, or nil.
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
	return fmt.Errorf("%d of %d proxies lost a stream; the last one: %s", n, len(f.Proxies), last)
}

// Hold stops a proxy from reading messages until the returned function is called.
func (f *Fleet) Hold(i int) (resume func()) {
	hold := make(chan struct{})
	f.Proxies[i].hold.Store(&hold)
	return func() {
		f.Proxies[i].hold.Store(nil)
		close(hold)
	}
}

// Stall ends a proxy's stream and drops its resources. The proxy reconnects, subscribes, and does not read the answers,
// of which next to nothing fits into its socket, until the returned function is called.
func (f *Fleet) Stall(i int) (resume func()) {
	resume = f.Hold(i)
	f.Proxies[i].disconnect()
	return resume
}

// Disconnect ends all streams. Proxies reconnect unless Shut was called.
func (f *Fleet) Disconnect() {
	for _, p := range f.Proxies {
		p.disconnect()
	}
}
