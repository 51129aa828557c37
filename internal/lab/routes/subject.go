package routes

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/openloop"
	"github.com/moonsail/moonsail/internal/lab/threads"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// subject is a layout on a running Envoy.
type subject struct {
	options *Options
	layout  layout // nil: the product makes it
	mesh    *mesh
	served
	unknown string // response for an unknown host
	where   string
	ready   time.Duration
	next    int // next service to change
}

// phase is the result of a load for a while, with or without changes.
type phase struct {
	outcome *openloop.Outcome
	cpu     threads.CPU
	took    time.Duration
	acks    []time.Duration
	bytes   uint64 // that Envoy received, if there are changes
}

const listenerName = "outbound"

func startSubject(ctx context.Context, o *Options, l Layout, hosts int, up *upstream) (*subject, error) {
	s := &subject{options: o, mesh: newMesh(hosts)}
	start := func() error { return s.startProduct(ctx, o, l.strategy, up) }
	if l.make != nil {
		s.layout = l.make()
		start = func() error { return s.start(ctx, o, up) }
	}
	if err := start(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// startProduct starts a subject whose resources the product makes. Unknown hosts are blocked: without interception,
// Envoy does not know the original destination.
func (s *subject) startProduct(ctx context.Context, o *Options, strategy string, up *upstream) (err error) {
	s.unknown = "502 "
	if s.product, err = startProduct(ctx, o, strategy, s.mesh, up); err != nil {
		return err
	}
	if s.proxy, err = startProxyWith(o.Envoy, o.Workers, s.product.bootstrap); err != nil {
		return err
	}
	s.where, s.ready, err = s.proxy.readyAt(ctx, s.product.where(), listenerName, host(0), s.mesh.routed(0))
	return err
}

func (s *subject) start(ctx context.Context, o *Options, up *upstream) (err error) {
	s.unknown = "200 " + fallback
	items, err := s.layout.all(s.mesh)
	if err != nil {
		return err
	}
	ln, err := listener(s.mesh, s.layout, listenerName)
	if err != nil {
		return err
	}
	if s.server, err = startServer(ctx); err != nil {
		return err
	}
	if err := s.server.put(append(items, item{resource.ListenerURL, listenerName, ln})); err != nil {
		return err
	}
	if s.proxy, err = startProxy(o.Envoy, o.Workers, s.server.port(), up.port()); err != nil {
		return err
	}
	s.where, s.ready, err = s.proxy.ready(ctx, listenerName, host(0), s.mesh.routed(0))
	return err
}

// served is an Envoy and its control plane, a server or the product; nil: not started, or not this one.
type served struct {
	server  *server
	product *product
	proxy   *proxy
}

func (s *served) stop() {
	if s.proxy != nil {
		s.proxy.stop()
	}
	if s.server != nil {
		s.server.stop()
	}
	if s.product != nil {
		s.product.stop()
	}
}

func (u *upstream) port() uint32 { return uint32(u.listener.Addr().(*net.TCPAddr).Port) } //nolint:forcetypeassert,gosec // it is TCP

// run loads Envoy for a phase. If changes is set, virtual hosts change meanwhile.
func (s *subject) run(ctx context.Context, o *Options, d time.Duration, changes bool) (*phase, error) {
	out := &phase{}
	before, err := threads.Read(s.proxy.process.Pid())
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changing sync.WaitGroup
	var failed error
	if changes {
		changing.Go(func() { failed = s.change(ctx, o.Changes, begun.Add(d), out) })
	}
	out.outcome, err = s.load(o).Run(ctx, d)
	changing.Wait()
	if err = errOr(failed, err); err != nil {
		return nil, err
	}
	after, err := threads.Read(s.proxy.process.Pid())
	out.cpu, out.took = after.Sub(before), time.Since(begun)
	return out, err
}

// load requests hosts of the whole mesh by their different names.
func (s *subject) load(o *Options) *openloop.Load {
	l := &openloop.Load{Address: s.where, Conns: o.Conns, Rate: o.Rate}
	for i := range min(len(s.mesh.versions), 97) {
		l.Hosts = append(l.Hosts, domains(i * len(s.mesh.versions) / 97 % len(s.mesh.versions))[i%3])
	}
	return l
}

// change changes one virtual host after the other until the end. The next change is due an interval after the last, and
// waits for its ACK. If the first change shows that ACKs come long before the next change, the product is not asked
// each time, because that uses CPU time of the subject.
func (s *subject) change(ctx context.Context, rate int, end time.Time, out *phase) error {
	interval := time.Second / time.Duration(rate)
	var unasked []pending
	for due := time.Now(); due.Before(end); due = later(due.Add(interval), time.Now()) {
		if err := clock.Sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		if s.product != nil && len(out.acks) > 0 && out.acks[0] < interval/4 {
			c, err := s.product.begin(s.turn())
			if err != nil {
				return err
			}
			unasked = append(unasked, c)
			continue
		}
		took, err := s.changeOne(ctx)
		if err != nil {
			return err
		}
		out.acks = append(out.acks, took)
	}
	if len(unasked) == 0 {
		return nil
	}
	took, err := s.product.await(ctx, unasked)
	out.acks = append(out.acks, took...)
	return err
}

// turn returns the next service to change.
func (s *subject) turn() int {
	i := s.next
	s.next = (s.next + 37) % len(s.mesh.versions)
	s.mesh.versions[i]++
	return i
}

func (s *subject) changeOne(ctx context.Context) (time.Duration, error) {
	i := s.turn()
	if s.product != nil {
		return s.product.change(ctx, i)
	}
	items, err := s.layout.changed(s.mesh, i)
	if err != nil {
		return 0, err
	}
	return s.server.change(ctx, items)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wrong returns how many of some hosts are routed wrongly, including one that does not exist and one that a wildcard
// matches.
func (s *subject) wrong(ctx context.Context) (n int, err error) {
	want := map[string]string{"unknown.example.org": s.unknown, "a.wild-1.example.com": "200 wild-1"}
	for i := range min(50, len(s.mesh.versions)) {
		k := i * 37 % len(s.mesh.versions)
		want[domains(k)[i%3]] = "200 " + s.mesh.routed(k)
	}
	for h, routed := range want {
		got, err := ask(ctx, s.where, h)
		if err != nil {
			return n, err
		}
		if got != routed {
			n++
		}
	}
	return n, nil
}
