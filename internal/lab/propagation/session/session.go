// Package session runs what scenarios of propagation measure: a mesh, a control plane with simulated proxies, and the
// same proxies on the baseline and on bare TCP.
//
//	config.go, location.go, peer.go, external.go  which control plane, and where its mesh is
//	session.go                                    start, connect, stop
//	subject.go, ackread.go                        measure one change
//	finalstate.go                                 check that every proxy has what it should have
//	baseline.go                                   the baseline and bare TCP
package session

import (
	"cmp"
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
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

// Session is one mesh, a control plane that serves it, and the connected proxies. The baseline and bare TCP have
// as many proxies.
type Session struct {
	Config   *Config
	Dir      string // of this session's files
	Location Location
	Env      []string // extra variables of the control plane: "NAME=value"
	Mesh     *meshfiles.Mesh
	IDs      []fleet.Identity
	CP       controlPlane
	Baseline *BaselineServer
	Bare     *bareServer

	Connected results.Result // result of connect-storm, with which each session begins
}

// controlPlane is the subject under test.
type controlPlane struct {
	Subject
	external string
	tape     *tape
}

func (c *controlPlane) Address() string {
	if c.Process != nil {
		return c.Process.Addr()
	}
	return c.external
}

// Bounds of a session.
const (
	ConnectTime = 5 * time.Minute
	readyTime   = 2 * time.Minute
	ReadyPoll   = 20 * time.Millisecond
)

// Open writes a mesh, starts a control plane on it and connects its proxies.
func Open(ctx context.Context, c *Config, dir string, shape meshfiles.Shape) (s *Session, err error) {
	s = &Session{Config: c, Dir: dir}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Location, err = NewLocation(ctx, c, dir); err != nil {
		return s, err
	}
	if s.Mesh, err = meshfiles.New(s.Location, shape); err != nil {
		return s, err
	}
	return s, s.Begin(ctx)
}

// Begin starts a control plane on the mesh. Its proxies start, but do not connect yet.
func (s *Session) Begin(ctx context.Context) error {
	s.IDs, s.CP.Concerned = s.Mesh.Identities()
	if err := s.StartControlPlane(ctx, AnyPort, AnyPort); err != nil {
		return err
	}
	s.CP.Fleet = fleet.NewFleet(fleet.NewCatalog(), s.FleetOptions(), s.IDs)
	s.CP.tape = &tape{}
	s.CP.Fleet.Proxies[0].Tape(s.CP.tape.record)
	s.CP.Fleet.Start(ctx)
	return nil
}

// StartControlPlane starts our control plane and waits until it is ready. Another one runs already.
func (s *Session) StartControlPlane(ctx context.Context, xds, pages string) error {
	c := &s.CP
	if c.Name = "the control plane"; s.Config.External != "" {
		c.external, c.PID = s.Config.External, s.Config.ExternalPID
		return nil
	}
	argv := append(slices.Clone(s.Config.Programs.Moonsail), "serve", "--http-addr", pages, "--log-format", "json")
	argv = append(append(argv, s.streams(xds)...), s.Location.argv...)
	p, err := child.StartWith(ctx, c.Name, s.Env, append(argv, s.Config.ServeFlags...)...)
	if err != nil {
		return err
	}
	c.Process, c.PID, c.answered = p, p.Pid(), changeLog(p)
	return c.waitReady(ctx)
}

// streams returns the control plane's flags for streams.
func (s *Session) streams(addr string) []string {
	if s.Config.TLS {
		return []string{"--xds-addr", addr, "--ca-dir", s.authority()}
	}
	return []string{"--xds-plaintext-addr", addr}
}

// FleetOptions returns the options of proxies that connect to the control plane.
func (s *Session) FleetOptions() fleet.Options {
	o := fleet.Options{Address: s.CP.Address()}
	if s.Config.TLS {
		o.TLS = (&certificates{dir: s.authority()}).of
	}
	return o
}

// authority returns the directory of the control plane's certificate authority.
func (s *Session) authority() string { return filepath.Join(s.Dir, "ca") }

// waitReady waits until the control plane has read its configuration.
func (c *controlPlane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(ReadyPoll)
	defer tick.Stop()
	for {
		if c.isReady(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.Process.Done():
			return c.Process.Ended()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s is not ready after %s:\n%s", c.Name, readyTime, c.Process.Tail())
			}
			return ctx.Err()
		}
	}
}

func (c *controlPlane) isReady(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Process.HTTP()+"/ready", http.NoBody)
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

// Connect connects all proxies at once: first those of the control plane, then, if beside is set, those of the
// baseline, which plays back what the control plane has sent. The scenario connect-storm reports it.
func (s *Session) Connect(ctx context.Context, beside bool) error {
	if err := s.awaitMesh(ctx); err != nil {
		return err
	}
	n := len(s.IDs)
	s.Config.Stepf("%s: connecting %d proxies", s, n)
	cp, err := s.ConnectAll(ctx, &s.CP.Subject, s.CP.Fleet.Open)
	if err != nil {
		return err
	}
	s.CP.Fleet.Proxies[0].Tape(nil)
	s.Connected = results.Result{Mesh: s.Mesh.Shape, Subject: cp}
	if !beside {
		return nil
	}
	s.Config.Stepf("%s: connecting %d proxies to the baseline", s, n)
	if s.Baseline, err = startBaseline(ctx, s.Config.Programs.Lab, s.Dir, s.CP.tape, s.IDs); err != nil {
		return err
	}
	s.Baseline.cheap = s.Location.Cluster != nil
	s.Baseline.Fleet.Start(ctx)
	side, err := s.ConnectAll(ctx, &s.Baseline.Subject, s.Baseline.Fleet.Open)
	if err != nil {
		return err
	}
	s.Connected.Baseline = &side
	s.Bare, err = startBare(ctx, s.Config.Programs.Lab, s.Dir, s.Mesh.Proxies)
	return err
}

// awaitMesh waits until another control plane has read the mesh. Ours has /ready for that.
func (s *Session) awaitMesh(ctx context.Context) error {
	if s.CP.Process != nil {
		return nil
	}
	s.Config.Stepf("%s: waiting for %s to serve the mesh", s, s.CP.external)
	last := meshfiles.ClusterName(s.Mesh.Service(s.Mesh.Services - 1))
	tick := time.NewTicker(10 * ReadyPoll)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < readyTime; {
		f, err := s.connectFresh(ctx, fleet.NewCatalog(), nil, s.IDs[:1])
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
	return fmt.Errorf("%s: does not serve the mesh in %s: configure it to read that", s.CP.external, s.Location.Name)
}

// ConnectAll connects all proxies of a server at once, and measures until each has all resources that it
// subscribed to.
func (s *Session) ConnectAll(ctx context.Context, who *Subject, open func() *fleet.Round) (results.Side, error) {
	heap, heapErr := who.heap(ctx)
	before, cpu := who.Fleet.Traffic(), who.CPU()
	if who.PID != 0 {
		child.ResetPeak(who.PID)
	}
	round := open()
	if err := who.Await(ctx, round, cmp.Or(s.Config.ConnectLimit, ConnectTime)); err != nil {
		return results.Side{}, err
	}
	if err := who.Quiet(ctx); err != nil {
		return results.Side{}, err
	}
	sample := results.Sample{CPU: results.Millis(who.CPU() - cpu), ProxyTimes: results.AllMillis(round.Latencies())}
	for _, l := range sample.ProxyTimes {
		sample.Last = max(sample.Last, l)
	}
	sample.Concerned, sample.Unconcerned = who.traffic(before)
	side := results.SideOf([]results.Sample{sample})
	side.PeakRSS = who.Memory().Peak
	if now, err := who.heap(ctx); err == nil && heapErr == nil {
		side.ProxyMemory = float64(now.Live+now.Stacks-heap.Live-heap.Stacks) / float64(len(who.Fleet.Proxies))
	}
	return side, nil
}

// heap returns a server's live memory, or an error if the server has no page for it.
func (s *Subject) heap(ctx context.Context) (child.Heap, error) {
	if s.Process == nil {
		return child.Heap{}, child.ErrUnsupported
	}
	return child.HeapOf(ctx, s.Process.HTTP())
}

// Memory returns the memory of the process; zero if it is unknown.
func (s *Subject) Memory() child.Memory {
	if s.PID == 0 {
		return child.Memory{}
	}
	m, err := child.MemoryOf(s.PID)
	if err != nil {
		return child.Memory{}
	}
	return m
}

// String returns the size of the mesh.
func (s *Session) String() string { return results.MeshName(s.Mesh.Shape) }

// Close stops all processes of the session and removes its files.
func (s *Session) Close() {
	s.CP.Stop()
	if s.Baseline != nil {
		s.Baseline.Stop()
	}
	s.Bare.stop()
	if s.Location.Place != nil && (s.Config.External != "" || s.Config.Source == SourceKube) {
		s.Config.Stepf("removing the mesh from %s", s.Location.Name)
		_ = s.Location.Clear() // the next run reports what is left
	}
	_ = os.RemoveAll(s.Dir) // best effort: it is a temporary directory
}
