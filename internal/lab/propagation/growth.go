package propagation

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

const (
	growthLimit = 1.2 // x the smallest mesh
	growthSeen  = 5   // services that a proxy's Sidecar lets it see
)

// growth measures the same change in meshes of different sizes: one control plane each, whose
// proxies see a few services by their Sidecar resource. Directories hold all meshes side by side,
// and changes go round them by turns; an API server holds one, which grows.
func growth(ctx context.Context, o *Options, dir string) (*Result, error) {
	if o.Source == SourceKube {
		return growthInTurn(ctx, o, dir)
	}
	g := &growing{}
	defer g.close()
	for i, n := range o.Growth {
		o.progress("growth: %d services", n)
		s, err := openSession(ctx, o, filepath.Join(dir, fmt.Sprint(i)), o.grown(n))
		if err != nil {
			return nil, err
		}
		g.add(s)
		if err := s.connect(ctx, false); err != nil {
			return nil, err
		}
	}
	if err := g.rounds(ctx, o, g.sessions); err != nil {
		return nil, err
	}
	for i := range g.sessions {
		if err := g.tell(ctx, i); err != nil {
			return nil, err
		}
	}
	return g.result(), nil
}

// grown is the mesh of so many services.
func (o *Options) grown(services int) meshfiles.Shape {
	return meshfiles.Shape{Services: services, Proxies: o.GrowthProxy, Seen: growthSeen, Replicas: 1}
}

// growthInTurn measures one size after the other: the next has the services of the last, and more.
func growthInTurn(ctx context.Context, o *Options, dir string) (*Result, error) {
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
		if err := s.connect(ctx, false); err != nil {
			return nil, err
		}
		if err := g.rounds(ctx, o, g.sessions[i:]); err != nil {
			return nil, err
		}
		if err := g.tell(ctx, i); err != nil {
			return nil, err
		}
		s.cp.stop()
	}
	r := g.result()
	r.Note += "; sizes were measured one after the other, not by turns"
	return r, nil
}

// growing is meshes of ascending sizes, and what was measured in each.
type growing struct {
	sessions []*session
	samples  [][]Sample
	Result
}

func (g *growing) add(s *session) {
	g.sessions, g.samples = append(g.sessions, s), append(g.samples, nil)
}

// next opens a session on the mesh of the last one, which grows; the first on a new one.
func (g *growing) next(ctx context.Context, o *Options, dir string, shape meshfiles.Shape) (s *session, err error) {
	if len(g.sessions) == 0 {
		s, err = openSession(ctx, o, dir, shape)
	} else {
		last := g.sessions[len(g.sessions)-1]
		s = &session{opts: o, dir: dir, place: last.place, mesh: last.mesh}
		last.place.Place = nil // the next one clears it
		if err = s.mesh.Grow(shape.Services); err == nil {
			err = s.begin(ctx)
		}
	}
	if err == nil || len(g.sessions) > 0 {
		g.add(s)
	}
	return s, err
}

// rounds makes the change in each of some sessions by turns; the first round is to warm up. They are
// the last ones of all.
func (g *growing) rounds(ctx context.Context, o *Options, list []*session) error {
	into := g.samples[len(g.samples)-len(list):]
	for n := range o.Rounds + 1 {
		o.progress("growth: change %d of %d in each of %d meshes", n, o.Rounds, len(list))
		for i, s := range list {
			sample, err := s.round(ctx, []step{{func() (meshfiles.Change, error) { return s.mesh.ReplaceEndpoint(0) }, true}}, nil)
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

// tell notes what was measured of the i-th session, and its final state.
func (g *growing) tell(ctx context.Context, i int) error {
	s := g.sessions[i]
	side := sideOf(g.samples[i])
	side.PeakRSS = s.cp.memory().Peak
	side.ProxyMemory = s.connected.Subject.ProxyMemory
	g.Series = append(g.Series, Point{s.mesh.Services, side})
	state, err := s.finalState(ctx)
	if err != nil {
		return err
	}
	if g.State == nil {
		g.State = &FinalState{}
	}
	g.State.merge(state)
	g.Mesh = s.mesh.Shape
	return nil
}

func (g *growing) result() *Result {
	r := &g.Result
	first, most := r.Series[0], r.Series[len(r.Series)-1]
	r.Subject, r.Floor = most.Side, &first.Side
	r.Note = fmt.Sprintf("FLOOR is the same change in a mesh of %d services", first.Services)
	r.barOver(fmt.Sprintf("last proxy, %d / %d services", most.Services, first.Services), last, first.Side.Samples, growthLimit)
	r.barOver(fmt.Sprintf("CPU a change, %d / %d services", most.Services, first.Services), cpu, first.Side.Samples, growthLimit)
	return r
}

func (g *growing) close() {
	for _, s := range g.sessions {
		s.close()
	}
}

func (f *FinalState) merge(other *FinalState) {
	f.Proxies += other.Proxies
	f.Fresh += other.Fresh
	f.Decoded += other.Decoded
	f.Wrong += other.Wrong
	f.First = append(f.First, other.First...)
}
