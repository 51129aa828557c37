package throughput

import (
	"context"
	"errors"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// rest suffices for Envoys that are paused for seconds.
const rest = 20 * time.Millisecond

// Shorten makes phases as short as possible, leaves fixed rates out, and calls look with each pair when it is ready.
func Shorten(e *experiment.Experiment, look func(name string, p *pair.Pair) error) {
	for i := range e.Variants {
		start, name := e.Variants[i].Start, e.Variants[i].Name
		e.Variants[i].Start = func(ctx context.Context) (experiment.Subject, error) {
			s, err := start(ctx)
			if scoped, ok := s.(*scopedPair); ok {
				scoped.Phases.Closed, scoped.Phases.Rest = 200*time.Millisecond, rest
			}
			if p, ok := s.(*pair.Subject); ok {
				p.Phases.Closed, p.Phases.Rates, p.Phases.Rest = 200*time.Millisecond, nil, rest
				return s, errors.Join(err, look(name, p.Pair))
			}
			return s, err
		}
	}
}
