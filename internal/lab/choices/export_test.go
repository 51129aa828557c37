package choices

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Shorten makes phases as short as possible, and calls look with each pair when it is ready.
func Shorten(e *experiment.Experiment, look func(name string, p *pair.Pair) error) {
	for i := range e.Variants {
		v := &e.Variants[i]
		start := v.Start
		v.Start = func(ctx context.Context) (experiment.Subject, error) {
			s, err := start(ctx)
			p, ok := s.(*pair.Subject)
			if !ok || err != nil {
				return s, err
			}
			p.Phases.Closed, p.Phases.Fixed, p.Phases.Connections, p.Phases.Rest = 100*time.Millisecond, 100*time.Millisecond, 4, 20*time.Millisecond
			return p, look(v.Name, p.Pair)
		}
	}
}
