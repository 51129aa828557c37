package propagation

import (
	"context"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
)

// Only restricts expedia and airbnb to some settings.
func (o *Options) Only(names ...string) { o.settings = names }

// ErrBudget is the cause that ends a run after its budget.
var ErrBudget = errBudget

// DefaultSetting is the setting that the others are compared with.
const DefaultSetting = rollout.DefaultSetting

// StaleState stops a proxy from reading while two changes are made, and returns the final state.
func StaleState(ctx context.Context, o Options, dir string, shape meshfiles.Shape) (stale string, state *results.FinalState, err error) {
	s, err := openMeshSession(ctx, &o, dir, shape)
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

// LateState returns the final state if the source is ahead of the control plane by a route and a rule.
func LateState(ctx context.Context, o Options, dir string, shape meshfiles.Shape) (*results.FinalState, error) {
	s, err := openMeshSession(ctx, &o, dir, shape)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Connect(ctx, false); err != nil {
		return nil, err
	}
	if _, err := s.Mesh.ChangeRoute(0); err != nil { // the change is prepared but not applied
		return nil, err
	}
	if _, err := s.Mesh.SetRule(1); err != nil {
		return nil, err
	}
	return s.FinalState(ctx)
}
