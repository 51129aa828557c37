package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// session is one mesh with a control plane that serves it and the proxies that are
// connected, and beside it the floor and the limit with as many.
type session struct {
	opts  *Options
	dir   string // of this session's files
	place place
	env   []string // of the control plane, beside our own: "NAME=value"
	mesh  *meshfiles.Mesh
	ids   []fleet.Identity
	cp    controlPlane
	floor *floorServer
	bare  *bareServer

	connected Result // the connect herd, which begins each session
}

// controlPlane is the subject under test.
type controlPlane struct {
	subject
	target string
	tape   *tape
}

func (c *controlPlane) address() string {
	if c.process != nil {
		return c.process.Addr()
	}
	return c.target
}

// Bounds of a session.
const (
	herdTime  = 5 * time.Minute
	readyTime = 2 * time.Minute
	readyPoll = 20 * time.Millisecond
)

// openSession writes a mesh, starts a control plane on it and connects its proxies.
func openSession(ctx context.Context, o *Options, dir string, shape meshfiles.Shape) (s *session, err error) {
	s = &session{opts: o, dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.place, err = newPlace(ctx, o, dir); err != nil {
		return s, err
	}
	if s.mesh, err = meshfiles.New(s.place, shape); err != nil {
		return s, err
	}
	return s, s.begin(ctx)
}

// begin starts a control plane on the mesh, and its proxies, which are not let in yet.
func (s *session) begin(ctx context.Context) error {
	s.ids, s.cp.concerned = s.mesh.Identities()
	if err := s.startControlPlane(ctx, anyPort, anyPort); err != nil {
		return err
	}
	s.cp.fleet = fleet.NewFleet(fleet.NewCatalog(), s.fleetOptions(), s.ids)
	s.cp.tape = &tape{}
	s.cp.fleet.Proxies[0].Tape(s.cp.tape.record)
	s.cp.fleet.Start(ctx)
	return nil
}

// startControlPlane starts ours and waits until it serves; another one is there already.
func (s *session) startControlPlane(ctx context.Context, xds, pages string) error {
	c := &s.cp
	if c.name = "the control plane"; s.opts.Target != "" {
		c.target, c.pid = s.opts.Target, s.opts.TargetPID
		return nil
	}
	argv := append(slices.Clone(s.opts.Programs.Moonsail), "serve", "--http-addr", pages, "--log-format", "json")
	argv = append(append(argv, s.streams(xds)...), s.place.argv...)
	p, err := child.StartWith(ctx, c.name, s.env, append(argv, s.opts.ServeFlags...)...)
	if err != nil {
		return err
	}
	c.process, c.pid, c.answered = p, p.Pid(), changeLog(p)
	return c.waitReady(ctx)
}

// streams are the control plane's flags for them.
func (s *session) streams(addr string) []string {
	if s.opts.TLS {
		return []string{"--xds-addr", addr, "--ca-dir", s.authority()}
	}
	return []string{"--xds-plaintext-addr", addr}
}

// fleetOptions are those of proxies that connect to the control plane.
func (s *session) fleetOptions() fleet.Options {
	o := fleet.Options{Address: s.cp.address()}
	if s.opts.TLS {
		o.TLS = (&certificates{dir: s.authority()}).of
	}
	return o
}

// authority is the directory of the control plane's certificate authority.
func (s *session) authority() string { return filepath.Join(s.dir, "ca") }

// waitReady waits until the control plane has read its configuration.
func (c *controlPlane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if c.isReady(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.process.Done():
			return c.process.Ended()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s is not ready after %s:\n%s", c.name, readyTime, c.process.Tail())
			}
			return ctx.Err()
		}
	}
}

func (c *controlPlane) isReady(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.process.HTTP()+"/ready", http.NoBody)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// connect is the connect herd: all proxies at once, first those of the control plane,
// then those of the floor, which plays back what the control plane has sent.
func (s *session) connect(ctx context.Context, beside bool) error {
	if err := s.awaitMesh(ctx); err != nil {
		return err
	}
	n := len(s.ids)
	s.opts.progress("%s: connecting %d proxies", s, n)
	cp, err := s.herd(ctx, &s.cp.subject, s.cp.fleet.Open)
	if err != nil {
		return err
	}
	s.cp.fleet.Proxies[0].Tape(nil)
	s.connected = Result{Scenario: "connect-herd", Mesh: s.mesh.Shape, Subject: cp}
	if !beside {
		return nil
	}
	s.opts.progress("%s: connecting %d proxies to the floor", s, n)
	if s.floor, err = startFloor(ctx, s.opts.Programs.Lab, s.dir, s.cp.tape, s.ids); err != nil {
		return err
	}
	s.floor.cheap = s.place.cluster != nil
	s.floor.fleet.Start(ctx)
	side, err := s.herd(ctx, &s.floor.subject, s.floor.fleet.Open)
	if err != nil {
		return err
	}
	s.connected.Floor = &side
	s.bare, err = startBare(ctx, s.opts.Programs.Lab, s.dir, s.mesh.Proxies)
	return err
}

// awaitMesh waits until another control plane has read the mesh: ours tells when it has.
func (s *session) awaitMesh(ctx context.Context) error {
	if s.cp.process != nil {
		return nil
	}
	s.opts.progress("%s: waiting for %s to serve the mesh", s, s.cp.target)
	last := meshfiles.ClusterName(s.mesh.Service(s.mesh.Services - 1))
	tick := time.NewTicker(10 * readyPoll)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < readyTime; {
		f, err := s.connectFresh(ctx, fleet.NewCatalog(), nil, s.ids[:1])
		if err != nil {
			return err
		}
		f.Stop()
		if f.Proxies[0].Holdings()[fleet.EDS][last] != "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s does not serve the mesh that was written to %s: does it read that?", s.cp.target, s.place.name)
}

// herd lets all proxies of a server connect at once, and measures until each has all
// that it asks for.
func (s *session) herd(ctx context.Context, who *subject, open func() *fleet.Round) (Side, error) {
	heap, heapErr := who.heap(ctx)
	before, cpu := who.fleet.Traffic(), who.cpu()
	if who.pid != 0 {
		child.ResetPeak(who.pid)
	}
	round := open()
	if err := who.await(ctx, round, herdTime); err != nil {
		return Side{}, err
	}
	if err := who.quiet(ctx); err != nil {
		return Side{}, err
	}
	sample := Sample{CPU: millis(who.cpu() - cpu), proxies: allMillis(round.Latencies())}
	for _, l := range sample.proxies {
		sample.Last = max(sample.Last, l)
	}
	sample.Concerned, sample.Unconcerned = who.traffic(before)
	side := sideOf([]Sample{sample})
	side.PeakRSS = who.memory().Peak
	if now, err := who.heap(ctx); err == nil && heapErr == nil {
		side.ProxyMemory = float64(now.Live+now.Stacks-heap.Live-heap.Stacks) / float64(len(who.fleet.Proxies))
	}
	return side, nil
}

// heap is a server's live memory; an error where it does not tell.
func (s *subject) heap(ctx context.Context) (child.Heap, error) {
	if s.process == nil {
		return child.Heap{}, child.ErrUnsupported
	}
	return child.HeapOf(ctx, s.process.HTTP())
}

func (s *subject) memory() child.Memory {
	if s.pid == 0 {
		return child.Memory{}
	}
	m, err := child.MemoryOf(s.pid)
	if err != nil {
		return child.Memory{}
	}
	return m
}

// String is the mesh's size.
func (s *session) String() string { return meshName(s.mesh.Shape) }

func meshName(m meshfiles.Shape) string { return fmt.Sprintf("%dx%d", m.Services, m.Proxies) }

// close ends everything that the session has started, and removes its files.
func (s *session) close() {
	s.cp.stop()
	if s.floor != nil {
		s.floor.stop()
	}
	s.bare.stop()
	if s.place.Place != nil && (s.opts.Target != "" || s.opts.Source == SourceKube) {
		s.opts.progress("removing the mesh from %s", s.place.name)
		_ = s.place.Clear() // the run is over; the next one will say so if something is left over
	}
	_ = os.RemoveAll(s.dir) // as above
}
