package propagation

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

const (
	growthLimit = 1.2 // x the smallest mesh
	growthSeen  = 5   // services that a proxy sees by its Sidecar resource
)

// growth measures the same change in meshes of different sizes. Each has a control plane, whose proxies see a few
// services by their Sidecar resource. With directories, all meshes exist at the same time and are measured in turn.
// An API server has one mesh, which grows.
func growth(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	if o.Source == session.SourceKube {
		return growthInTurn(ctx, o, dir)
	}
	g := &growing{}
	defer g.close()
	for i, n := range o.Growth {
		o.progress("growth: %d services", n)
		s, err := openMeshSession(ctx, o, filepath.Join(dir, fmt.Sprint(i)), o.grown(n))
		if err != nil {
			return nil, err
		}
		g.add(s)
		if err := s.Connect(ctx, false); err != nil {
			return nil, err
		}
	}
	if err := g.rounds(ctx, o, g.sessions); err != nil {
		return nil, err
	}
	for i := range g.sessions {
		if err := g.record(ctx, i); err != nil {
			return nil, err
		}
	}
	return g.result(), nil
}

// grown returns the mesh with that many services.
func (o *Options) grown(services int) meshfiles.Shape {
	return meshfiles.Shape{Services: services, Proxies: o.GrowthProxy, Seen: growthSeen, Replicas: 1}
}

// growthInTurn measures one size after the other. Each mesh contains the services of the one before.
func growthInTurn(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	g := &growing{}
	defer g.close()
	for i, n := range o.Growth {
		if i > 0 && o.GrowthMost > 0 && n > o.GrowthMost {
			break
		}
		o.progress("growth: %d services", n)
		s, err := g.next(ctx, o, filepath.Join(dir, fmt.Sprint(i)), o.grown(n))
		if err != nil {
			return nil, err
		}
		if err := s.Connect(ctx, false); err != nil {
			return nil, err
		}
		if err := g.rounds(ctx, o, g.sessions[i:]); err != nil {
			return nil, err
		}
		if err := g.record(ctx, i); err != nil {
			return nil, err
		}
		s.CP.Stop()
	}
	r := g.result()
	r.Note += "; sizes were measured one after the other, not in turn"
	return r, nil
}

// growing has meshes of ascending sizes and their measurements.
type growing struct {
	sessions []*meshSession
	samples  [][]results.Sample
	results.Result
}

func (g *growing) add(s *meshSession) {
	g.sessions, g.samples = append(g.sessions, s), append(g.samples, nil)
}

// next opens a session on the mesh of the last session, which grows. The first session creates the mesh.
func (g *growing) next(ctx context.Context, o *Options, dir string, shape meshfiles.Shape) (s *meshSession, err error) {
	if len(g.sessions) == 0 {
		s, err = openMeshSession(ctx, o, dir, shape)
	} else {
		last := g.sessions[len(g.sessions)-1]
		s = &meshSession{&session.Session{Config: &o.Config, Dir: dir, Location: last.Location, Mesh: last.Mesh}, o}
		last.Location.Place = nil // the next session clears it
		if err = s.Mesh.Grow(shape.Services); err == nil {
			err = s.Begin(ctx)
		}
	}
	if err == nil || len(g.sessions) > 0 {
		g.add(s)
	}
	return s, err
}

// rounds makes the change in each session of list in turn. The first round is a warm-up. list has the newest
// sessions of g.
func (g *growing) rounds(ctx context.Context, o *Options, list []*meshSession) error {
	into := g.samples[len(g.samples)-len(list):]
	for n := range o.Rounds + 1 {
		o.progress("growth: change %d of %d in each of %d meshes", n, o.Rounds, len(list))
		for i, s := range list {
			sample, err := s.round(ctx, []step{{func() (meshfiles.Change, error) { return s.Mesh.ReplaceEndpoint(0) }, true}}, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			if n > 0 {
				into[i] = append(into[i], sample)
			}
		}
	}
	return nil
}

// record records the measurements of the i-th session and its final state.
func (g *growing) record(ctx context.Context, i int) error {
	s := g.sessions[i]
	side := results.SideOf(g.samples[i])
	side.PeakRSS = s.CP.Memory().Peak
	side.ProxyMemory = s.Connected.Subject.ProxyMemory
	g.Series = append(g.Series, results.Point{Services: s.Mesh.Services, Side: side})
	state, err := s.FinalState(ctx)
	if err != nil {
		return err
	}
	if g.State == nil {
		g.State = &results.FinalState{}
	}
	g.State.Merge(state)
	g.Mesh = s.Mesh.Shape
	return nil
}

func (g *growing) result() *results.Result {
	r := &g.Result
	first, most := r.Series[0], r.Series[len(r.Series)-1]
	r.Subject, r.Baseline = most.Side, &first.Side
	r.Note = fmt.Sprintf("BASELINE: the same change in a mesh of %d services", first.Services)
	r.AddRatioTarget(fmt.Sprintf("last proxy, %d / %d services", most.Services, first.Services), results.LastOf, first.Side.Samples, growthLimit)
	r.AddRatioTarget(fmt.Sprintf("CPU a change, %d / %d services", most.Services, first.Services), results.CPUOf, first.Side.Samples, growthLimit)
	return r
}

func (g *growing) close() {
	for _, s := range g.sessions {
		s.Close()
	}
}
