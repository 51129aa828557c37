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
	defer s.cp.fleet.Stall(1)()
	s.cp.concerned[1] = false
	for i := range 2 {
		if _, err := s.round(ctx, endpointSteps(s.mesh, i)); err != nil {
			return "", nil, err
		}
	}
	state, err = s.finalState(ctx)
	return s.ids[1].Name, state, err
}
