package peers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Intervals and bounds.
const (
	// Patience is how long a peer may be silent until it is not waited for.
	Patience = 5 * time.Second
	// Every is the interval of discovery and liveness checks.
	Every = time.Second
	// helloTimeout bounds one liveness check.
	helloTimeout = 2 * time.Second
	// Max bounds the peers. Further ones are not asked, which the log reports.
	Max = 16
	// maxCalls bounds the concurrent calls to a peer.
	maxCalls = 64
)

// Options configure Peers.
type Options struct {
	// Listed returns addresses of control planes, host:port, possibly with this one's. A host is an address
	// or a name, which may have several addresses. It is called each second.
	Listed func() []string
	// Own returns the address at which this control plane listens; empty: unknown.
	Own func() string
	// TLS returns the configuration for a new connection; nil: plain text.
	TLS func() (*tls.Config, error)
	Log *slog.Logger
	// Failed is called for each question without an answer, with the name of its method; nil: not called.
	Failed func(question string)
	// Patience is described at the constant, which is the default.
	Patience time.Duration
	Every    time.Duration // 0: Every
}

// Peers are the other control planes.
type Peers struct {
	opts Options
	id   string // of this control plane, until it ends

	looked chan struct{} // closed when the list exists for the first time

	names map[string][]string // the last addresses of hosts; owned by Run's goroutine

	mu    sync.Mutex // guards the fields below
	known map[string]*Peer
	lost  time.Time // when the last peer that had answered was lost
	over  int       // number of listed ones beyond Max
}

// New returns an empty list. Run fills it.
func New(o Options) *Peers {
	if o.Patience == 0 {
		o.Patience = Patience
	}
	if o.Every == 0 {
		o.Every = Every
	}
	return &Peers{opts: o, id: rand.Text(), looked: make(chan struct{}), known: map[string]*Peer{}, names: map[string][]string{}}
}

// ID returns this control plane's name among its peers.
func (s *Peers) ID() string { return s.id }

// Run keeps the list until ctx ends. It begins when begin is closed; nil: at once.
func (s *Peers) Run(ctx context.Context, begin <-chan struct{}) {
	tick := time.NewTicker(s.opts.Every)
	defer tick.Stop()
	var living sync.WaitGroup
	defer living.Wait()
	defer s.forget()
	if begin != nil {
		select {
		case <-begin:
		case <-ctx.Done():
			return
		}
	}
	for first := true; ; first = false {
		s.look(ctx, &living)
		if first {
			close(s.looked)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Looked returns a channel that is closed when the peers are known.
func (s *Peers) Looked() <-chan struct{} { return s.looked }

// look updates the list. Run's goroutine calls it.
func (s *Peers) look(ctx context.Context, living *sync.WaitGroup) {
	want := s.addresses(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, p := range s.known {
		if !slices.Contains(want, address) {
			delete(s.known, address)
			s.leave(p)
		}
	}
	for _, address := range want {
		if s.known[address] != nil || ctx.Err() != nil {
			continue
		}
		p := newPeer(ctx, s, address)
		s.known[address] = p
		living.Go(p.live)
	}
}

// leave ends a peer that is not listed any more. The caller holds mu.
func (s *Peers) leave(p *Peer) {
	p.cancel()
	if p.hasLived() {
		s.lost = time.Now()
		s.opts.Log.Info("another control plane is no longer listed", "peer", p.Address)
	}
}

// forget ends all peers.
func (s *Peers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, p := range s.known {
		p.cancel()
		delete(s.known, address)
	}
}

// noteLost records the loss of a peer.
func (s *Peers) noteLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Now()
}

// Lost returns when the last control plane was lost. Its proxies may be on their way to another one, and no
// control plane knows them meanwhile.
func (s *Peers) Lost() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// All returns the peers that are alive, or may be: each process once, in order.
func (s *Peers) All() []*Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Peer
	seen := map[string]bool{s.id: true}
	for _, address := range slices.Sorted(maps.Keys(s.known)) {
		p := s.known[address]
		id, gone := p.standing()
		if gone || seen[id] && id != "" {
			continue
		}
		seen[id] = true
		out = append(out, p)
	}
	return out
}

// addresses returns the configured addresses without this control plane's own.
func (s *Peers) addresses(ctx context.Context) []string {
	var out []string
	for _, listed := range s.opts.Listed() {
		host, port, err := net.SplitHostPort(listed)
		if err != nil {
			continue // flags are validated, and slices have numbers
		}
		for _, a := range s.resolve(ctx, host) {
			if address := net.JoinHostPort(a, port); !s.isOwn(a, port) && !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
	}
	slices.Sort(out)
	over := max(0, len(out)-Max)
	s.mu.Lock()
	reported := s.over
	s.over = over
	s.mu.Unlock()
	if over > 0 && reported != over {
		s.opts.Log.Warn("more control planes are listed than the limit: the others are not asked", "listed", len(out), "asked", Max)
	}
	return out[:len(out)-over]
}

// resolve returns a host's addresses. If there are none now, it returns the previous ones, or the name if
// there never were any.
func (s *Peers) resolve(ctx context.Context, host string) []string {
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{host}
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if list, err := net.DefaultResolver.LookupHost(ctx, host); err == nil {
		s.names[host] = list
	}
	if list := s.names[host]; len(list) > 0 {
		return list
	}
	return []string{host}
}

// isOwn reports whether an address is this control plane's own: its port, on this host.
func (s *Peers) isOwn(host, port string) bool {
	own := ""
	if s.opts.Own != nil {
		own = s.opts.Own()
	}
	ownHost, ownPort, err := net.SplitHostPort(own)
	if err != nil || ownPort != port {
		return false
	}
	if ip, err := netip.ParseAddr(ownHost); err == nil && !ip.IsUnspecified() {
		return host == ownHost
	}
	local, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(local, func(a net.Addr) bool { return strings.HasPrefix(a.String(), host+"/") })
}
