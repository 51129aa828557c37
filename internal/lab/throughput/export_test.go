package throughput

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Shorten makes phases as short as can be, and leaves fixed rates out.
func Shorten(e *experiment.Experiment) {
	for i := range e.Variants {
		start := e.Variants[i].Start
		e.Variants[i].Start = func(ctx context.Context) (experiment.Subject, error) {
			s, err := start(ctx)
			if scoped, ok := s.(*scopedPair); ok {
				scoped.Phases.Closed = 200 * time.Millisecond
			}
			if p, ok := s.(*pair.Subject); ok {
				p.Phases.Closed, p.Phases.Rates = 200*time.Millisecond, nil
			}
			return s, err
		}
	}
}
