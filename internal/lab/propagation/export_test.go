package propagation

import (
	"context"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
)

// Only leaves some of the settings of expedia and airbnb.
func (o *Options) Only(names ...string) { o.settings = names }

// ErrBudget ends a run whose time is over.
var ErrBudget = errBudget

// DefaultSetting is the one that the others are compared with.
const DefaultSetting = rollout.DefaultSetting

// StaleState has a proxy read nothing while two changes happen, and gives the final state.
func StaleState(ctx context.Context, o Options, dir string, shape meshfiles.Shape) (stale string, state *results.FinalState, err error) {
	s, err := openBench(ctx, &o, dir, shape)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	if err := s.Connect(ctx, false); err != nil {
		return "", nil, err
	}
	defer s.CP.Fleet.Hold(1)()
	s.CP.Concerned[1] = false
	for i := range 2 {
		if _, err := s.round(ctx, endpointSteps(s.Mesh, i), nil); err != nil {
			return "", nil, err
		}
	}
	state, err = s.FinalState(ctx)
	return s.IDs[1].Name, state, err
}

// LateState has the source be ahead of the control plane by a route and a rule, and gives the final
// state.
func LateState(ctx context.Context, o Options, dir string, shape meshfiles.Shape) (*results.FinalState, error) {
	s, err := openBench(ctx, &o, dir, shape)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Connect(ctx, false); err != nil {
		return nil, err
	}
	if _, err := s.Mesh.ChangeRoute(0); err != nil { // and nobody makes it happen
		return nil, err
	}
	if _, err := s.Mesh.SetRule(1); err != nil {
		return nil, err
	}
	return s.FinalState(ctx)
}
