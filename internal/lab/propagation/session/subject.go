package session

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

// Subject is a server under measurement with its connected proxies.
type Subject struct {
	Name      string
	PID       int            // 0: unknown; then its CPU time and memory are not measured
	Process   *child.Process // nil: the lab did not start it
	Fleet     *fleet.Fleet
	Concerned []bool // by proxy: whether changes concern it
	// answered returns when the server had read the last ACK; nil: unknown.
	answered heardFrom
}

// Bounds of one change.
const (
	ChangeTime = 90 * time.Second      // after which a change counts as lost
	quietTick  = 4 * time.Millisecond  // between two reads of the CPU clock
	quietTime  = 5 * time.Second       // after which a server counts as idle anyway
	quietLooks = 4                     // consecutive reads with next to no CPU time
	quietUse   = 50 * time.Microsecond // CPU time in one tick that counts as next to none
)

// Measure applies a change and follows it to the last proxy.
func (s *Subject) Measure(ctx context.Context, wants []fleet.Want, apply func() error) (results.Sample, error) {
	round := s.Fleet.Expect(s.Concerned, wants...)
	defer s.Fleet.Forget()
	before := s.Fleet.Traffic()
	cpu := s.CPU()
	round.Restart()
	if err := apply(); err != nil {
		return results.Sample{}, err
	}
	if err := s.Await(ctx, round, ChangeTime); err != nil {
		return results.Sample{}, err
	}
	if err := s.Quiet(ctx); err != nil {
		return results.Sample{}, err
	}
	out := results.Sample{CPU: results.Millis(s.CPU() - cpu), Began: round.Start(), ProxyTimes: results.AllMillis(round.Latencies())}
	for _, l := range out.ProxyTimes {
		out.Last = max(out.Last, l)
	}
	out.Concerned, out.Unconcerned = s.traffic(before)
	return out, nil
}

// Await waits for the end of a round.
func (s *Subject) Await(ctx context.Context, round *fleet.Round, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-round.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended():
		return s.Process.Ended()
	case <-timer.C:
	}
	err := fmt.Errorf("%s: %d of %d proxies did not get the change within %s", s.Name, round.Left(), len(s.Fleet.Proxies), limit)
	if trouble := s.Fleet.Trouble(); trouble != nil {
		err = fmt.Errorf("%w; %w", err, trouble)
	}
	return err
}

// ended returns a channel that is closed when the server ends; nil if the lab did not start it.
func (s *Subject) ended() <-chan struct{} {
	if s.Process == nil {
		return nil
	}
	return s.Process.Done()
}

// CPU returns the CPU time of the process since its start; zero if it is unknown.
func (s *Subject) CPU() time.Duration {
	if s.PID == 0 {
		return 0
	}
	d, err := child.CPU(s.PID)
	if err != nil {
		return 0 // Run has checked that it can be read
	}
	return d
}

// Quiet waits until the server uses next to no CPU time and its proxies receive nothing. Traffic is summed only
// while the server is idle, because with thousands of proxies the sum takes CPU time from a busy server.
func (s *Subject) Quiet(ctx context.Context) error {
	tick := time.NewTicker(quietTick)
	defer tick.Stop()
	last, lastBytes := s.CPU(), int64(-1)
	for calm, start := 0, time.Now(); calm < quietLooks && time.Since(start) < quietTime; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := s.CPU()
		busy := now-last > quietUse
		if last = now; busy {
			calm = 0
			continue
		}
		bytes := fleet.Total(s.Fleet.Traffic()).Bytes
		if calm++; bytes != lastBytes {
			calm, lastBytes = 0, bytes
		}
	}
	return nil
}

// traffic returns the average traffic to a proxy since before.
func (s *Subject) traffic(before []fleet.Traffic) (concerned, unconcerned results.PerProxy) {
	var n [2]float64
	for i, t := range s.Fleet.Traffic() {
		t = t.Sub(before[i])
		into, j := &concerned, 0
		if s.Concerned != nil && !s.Concerned[i] {
			into, j = &unconcerned, 1
		}
		n[j]++
		into.Messages += float64(t.Messages)
		into.Bytes += float64(t.Bytes)
	}
	concerned.Over(n[0])
	unconcerned.Over(n[1])
	return concerned, unconcerned
}

// Stop disconnects the proxies, and stops the server if the lab started it.
func (s *Subject) Stop() {
	if s == nil {
		return
	}
	if s.Fleet != nil {
		s.Fleet.Stop()
	}
	if s.Process != nil {
		s.Process.Stop(stopTime)
	}
}

const stopTime = 5 * time.Second
