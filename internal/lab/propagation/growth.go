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

// growth measures the same change in meshes of different sizes, side by side: one control
// plane each, whose proxies see a few services by their Sidecar resource.
func growth(ctx context.Context, o *Options, dir string) (r *Result, err error) {
	var sessions []*session
	defer func() {
		for _, s := range sessions {
			s.close()
		}
	}()
	for i, n := range o.Growth {
		o.progress("growth: %d services", n)
		shape := meshfiles.Shape{Services: n, Proxies: o.GrowthProxy, Seen: growthSeen, Replicas: 1}
		s, err := openSession(ctx, o, filepath.Join(dir, fmt.Sprint(i)), shape)
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
		if err := s.connect(ctx, false); err != nil {
			return nil, err
		}
	}
	samples, err := growthRounds(ctx, o, sessions)
	if err != nil {
		return nil, err
	}
	return growthResult(ctx, sessions, samples)
}

func growthRounds(ctx context.Context, o *Options, sessions []*session) (samples [][]Sample, err error) {
	samples = make([][]Sample, len(sessions))
	for n := range o.Rounds + 1 {
		o.progress("growth: change %d of %d in each of %d meshes", n, o.Rounds, len(sessions))
		for i, s := range sessions {
			sample, err := s.round(ctx, []step{{func() (meshfiles.Change, error) { return s.mesh.ReplaceEndpoint(0) }, true}})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s, err)
			}
			if n > 0 {
				samples[i] = append(samples[i], sample)
			}
		}
	}
	return samples, nil
}

func growthResult(ctx context.Context, sessions []*session, samples [][]Sample) (*Result, error) {
	r := &Result{State: &FinalState{}}
	for i, s := range sessions {
		side := sideOf(samples[i])
		side.PeakRSS = s.cp.memory().Peak
		side.ProxyMemory = s.connected.Subject.ProxyMemory
		r.Series = append(r.Series, Point{s.mesh.Services, side})
		state, err := s.finalState(ctx)
		if err != nil {
			return nil, err
		}
		r.State.merge(state)
	}
	first, most := r.Series[0], r.Series[len(r.Series)-1]
	r.Subject, r.Floor = most.Side, &first.Side
	r.Mesh = sessions[len(sessions)-1].mesh.Shape
	r.Note = fmt.Sprintf("FLOOR is the same change in a mesh of %d services", first.Services)
	r.barOver(fmt.Sprintf("last proxy, %d / %d services", most.Services, first.Services), last, first.Side.Samples, growthLimit)
	r.barOver(fmt.Sprintf("CPU a change, %d / %d services", most.Services, first.Services), cpu, first.Side.Samples, growthLimit)
	return r, nil
}

func (f *FinalState) merge(other *FinalState) {
	f.Proxies += other.Proxies
	f.Fresh += other.Fresh
	f.Decoded += other.Decoded
	f.Wrong += other.Wrong
	f.First = append(f.First, other.First...)
}
