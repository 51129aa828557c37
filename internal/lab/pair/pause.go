package pair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// restTime is the default of Phases.Rest.
const restTime = 500 * time.Millisecond

// Pause implements experiment.Pauser. It stops the Envoys, which otherwise run timers and flush statistics, for
// milliseconds at a time with a thousand clusters. Agents continue, which keeps streams to the control plane.
func (s *Subject) Pause() error { return s.signal("pause", syscall.SIGSTOP) }

// Resume implements experiment.Pauser.
func (s *Subject) Resume(ctx context.Context) error {
	if err := s.signal("resume", syscall.SIGCONT); err != nil || len(s.Sidecars()) == 0 {
		return err
	}
	if err := clock.Sleep(ctx, cmp.Or(s.Phases.Rest, restTime)); err != nil {
		return err
	}
	return s.await(ctx)
}

func (s *Subject) signal(what string, sig syscall.Signal) error {
	var errs []error
	for _, x := range s.Sidecars() {
		if err := syscall.Kill(x.Pid, sig); err != nil {
			errs = append(errs, fmt.Errorf("cannot %s the Envoy of %s, process %d: %w", what, x.Name, x.Pid, err))
		}
	}
	return errors.Join(errs...)
}
