package propagation

import (
	"context"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Only leaves some of the settings of expedia and airbnb.
func (o *Options) Only(names ...string) { o.settings = names }

// ErrBudget ends a run whose time is over.
var ErrBudget = errBudget

// DefaultSetting is the one that the others are compared with.
const DefaultSetting = defaultSetting

// StaleState has a proxy read nothing while two changes happen, and gives the final state.
func StaleState(ctx context.Context, o Options, dir string, shape meshfiles.Shape) (stale string, state *FinalState, err error) {
	s, err := openSession(ctx, &o, dir, shape)
	if err != nil {
		return "", nil, err
	}
	defer s.close()
	if err := s.connect(ctx, false); err != nil {
		return "", nil, err
	}
	defer s.cp.fleet.Hold(1)()
	s.cp.concerned[1] = false
	for i := range 2 {
		if _, err := s.round(ctx, endpointSteps(s.mesh, i), nil); err != nil {
			return "", nil, err
		}
	}
	state, err = s.finalState(ctx)
	return s.ids[1].Name, state, err
}

// LateState has the source be ahead of the control plane by a route and a rule, and gives the final
// state.
func LateState(ctx context.Context, o Options, dir string, shape meshfiles.Shape) (*FinalState, error) {
	s, err := openSession(ctx, &o, dir, shape)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.connect(ctx, false); err != nil {
		return nil, err
	}
	if _, err := s.mesh.ChangeRoute(0); err != nil { // and nobody makes it happen
		return nil, err
	}
	if _, err := s.mesh.SetRule(1); err != nil {
		return nil, err
	}
	return s.finalState(ctx)
}
