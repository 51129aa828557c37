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

// Timing, and bounds.
const (
	// Patience is how long a peer may say nothing before nobody waits for it any more.
	Patience = 5 * time.Second
	// Every is how often it is looked who there is, and whether they live.
	Every = time.Second
	// helloTimeout bounds one such question.
	helloTimeout = 2 * time.Second
	// Max bounds the peers; those beyond are not asked, which is told.
	Max = 16
	// maxCalls bounds what a peer is asked at the same time.
	maxCalls = 64
)

// Options are what Peers can be told.
type Options struct {
	// Listed gives addresses of control planes, host:port, this one's perhaps among them. A
	// host is an address or a name, which may have several. It is called each second.
	Listed func() []string
	// Own tells the address at which this one listens itself; empty: not known.
	Own func() string
	// TLS is what a connection is made with, asked for each; nil: plain text.
	TLS func() (*tls.Config, error)
	Log *slog.Logger
	// Failed is told of each question that a peer did not answer, by the name of its method;
	// nil: nobody is.
	Failed func(question string)
	// Patience is explained at the constant; 0: that.
	Patience time.Duration
	Every    time.Duration // 0: Every
}

// Peers are the other control planes.
type Peers struct {
	opts Options
	id   string // of this one, until it ends

	looked chan struct{} // closed when the list is there for the first time

	names map[string][]string // the addresses that hosts had last; Run's goroutine's

	mu    sync.Mutex // guards what follows
	known map[string]*Peer
	lost  time.Time // when a peer was lost last that had lived
	over  int       // how many are listed beyond Max
}

// New makes them; Run finds them.
func New(o Options) *Peers {
	if o.Patience == 0 {
		o.Patience = Patience
	}
	if o.Every == 0 {
		o.Every = Every
	}
	return &Peers{opts: o, id: rand.Text(), looked: make(chan struct{}), known: map[string]*Peer{}, names: map[string][]string{}}
}

// ID is this control plane's name among its peers.
func (s *Peers) ID() string { return s.id }

// Run keeps the list until ctx ends. begin is when it may be asked for; nil: at once.
func (s *Peers) Run(ctx context.Context, begin func() bool) {
	tick := time.NewTicker(s.opts.Every)
	defer tick.Stop()
	var living sync.WaitGroup
	defer living.Wait()
	defer s.forget()
	for first := true; ; {
		if begin == nil || begin() {
			s.look(ctx, &living)
			if first {
				close(s.looked)
			}
			first, begin = false, nil
		}
		wait := tick.C
		if begin != nil {
			wait = time.After(beginEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-wait:
		}
	}
}

const beginEvery = 10 * time.Millisecond

// Looked is closed when it is known who there is.
func (s *Peers) Looked() <-chan struct{} { return s.looked }

// look brings the list up to date. Run's goroutine calls it.
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

// leave ends a peer that is not listed any more; mu is held.
func (s *Peers) leave(p *Peer) {
	p.cancel()
	if p.hasLived() {
		s.lost = time.Now()
		s.opts.Log.Info("another control plane is not listed any more", "peer", p.Address)
	}
}

// forget ends all.
func (s *Peers) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, p := range s.known {
		p.cancel()
		delete(s.known, address)
	}
}

// noteLost notes that a peer does not live any more.
func (s *Peers) noteLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Now()
}

// Lost is when a control plane was lost last: its proxies may be on their way to another one,
// and nobody knows them meanwhile.
func (s *Peers) Lost() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// All are those that live, or may: one of each, in order.
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

// addresses are where control planes are said to be, but for this one's own.
func (s *Peers) addresses(ctx context.Context) []string {
	var out []string
	for _, listed := range s.opts.Listed() {
		host, port, err := net.SplitHostPort(listed)
		if err != nil {
			continue // flags are checked, and slices have numbers
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
	told := s.over
	s.over = over
	s.mu.Unlock()
	if over > 0 && told != over {
		s.opts.Log.Warn("more control planes are listed than are asked", "listed", len(out), "asked", Max)
	}
	return out[:len(out)-over]
}

// resolve gives a host's addresses: those that it had last, where it has none now, and the
// name itself where it never had any.
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

// isOwn tells whether an address is this control plane's own: its port, at this host.
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
