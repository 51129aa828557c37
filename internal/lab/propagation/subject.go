package propagation

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// subject is a server that is measured, with the proxies that are connected to it.
type subject struct {
	name      string
	pid       int            // 0: not known; nothing is said of its CPU time and memory
	process   *child.Process // nil: not ours
	fleet     *fleet.Fleet
	concerned []bool // by proxy: changes concern it
	// answered tells when the server had read the last answer; nil: it cannot tell.
	answered heardFrom
}

// Sample is what one change was measured to take.
type Sample struct {
	Last        float64  `json:"last_ms"`            // until the last proxy has ACKed
	Heard       float64  `json:"heard_ms,omitempty"` // until the server has read the last ACK; 0: it does not tell
	CPU         float64  `json:"cpu_ms"`             // of the server, until it is quiet again
	Concerned   PerProxy `json:"concerned"`
	Unconcerned PerProxy `json:"unconcerned"`
	began       time.Time
	proxies     []float64 // milliseconds, one for each concerned proxy
}

// PerProxy is traffic to a proxy, on average.
type PerProxy struct {
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`
}

// Bounds of one change.
const (
	changeTime = 90 * time.Second      // until it counts as lost
	quietTick  = 4 * time.Millisecond  // between two looks at the CPU clock
	quietTime  = 5 * time.Second       // after which a server counts as quiet all the same
	quietLooks = 4                     // that must show next to no CPU time, one after the other
	quietUse   = 50 * time.Microsecond // next to no CPU time in one tick
)

// measure makes a change happen and follows it to the last proxy.
func (s *subject) measure(ctx context.Context, wants []fleet.Want, apply func() error) (Sample, error) {
	round := s.fleet.Expect(s.concerned, wants...)
	defer s.fleet.Forget()
	before := s.fleet.Traffic()
	cpu := s.cpu()
	round.Restart()
	if err := apply(); err != nil {
		return Sample{}, err
	}
	if err := s.await(ctx, round, changeTime); err != nil {
		return Sample{}, err
	}
	if err := s.quiet(ctx); err != nil {
		return Sample{}, err
	}
	out := Sample{CPU: millis(s.cpu() - cpu), began: round.Start(), proxies: allMillis(round.Latencies())}
	for _, l := range out.proxies {
		out.Last = max(out.Last, l)
	}
	out.Concerned, out.Unconcerned = s.traffic(before)
	return out, nil
}

// await waits for a round to end.
func (s *subject) await(ctx context.Context, round *fleet.Round, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-round.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended():
		return s.process.Ended()
	case <-timer.C:
	}
	err := fmt.Errorf("%s: %d of %d proxies have not got there in %s", s.name, round.Left(), len(s.fleet.Proxies), limit)
	if trouble := s.fleet.Trouble(); trouble != nil {
		err = fmt.Errorf("%w; %w", err, trouble)
	}
	return err
}

// ended is closed when a server of ours has ended.
func (s *subject) ended() <-chan struct{} {
	if s.process == nil {
		return nil
	}
	return s.process.Done()
}

func (s *subject) cpu() time.Duration {
	if s.pid == 0 {
		return 0
	}
	d, err := child.CPU(s.pid)
	if err != nil {
		return 0 // whoever starts a run checks first that it can be read
	}
	return d
}

// quiet waits until the server uses next to no CPU time and its proxies get nothing. Their traffic is added up
// only when the server rests: with thousands of proxies that takes CPU time from one that works.
func (s *subject) quiet(ctx context.Context) error {
	tick := time.NewTicker(quietTick)
	defer tick.Stop()
	last, lastBytes := s.cpu(), int64(-1)
	for calm, start := 0, time.Now(); calm < quietLooks && time.Since(start) < quietTime; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := s.cpu()
		busy := now-last > quietUse
		if last = now; busy {
			calm = 0
			continue
		}
		bytes := fleet.Total(s.fleet.Traffic()).Bytes
		if calm++; bytes != lastBytes {
			calm, lastBytes = 0, bytes
		}
	}
	return nil
}

// traffic is what came to a proxy since before.
func (s *subject) traffic(before []fleet.Traffic) (concerned, unconcerned PerProxy) {
	var n [2]float64
	for i, t := range s.fleet.Traffic() {
		t = t.Sub(before[i])
		into, j := &concerned, 0
		if s.concerned != nil && !s.concerned[i] {
			into, j = &unconcerned, 1
		}
		n[j]++
		into.Messages += float64(t.Messages)
		into.Bytes += float64(t.Bytes)
	}
	concerned.over(n[0])
	unconcerned.over(n[1])
	return concerned, unconcerned
}

func (p *PerProxy) over(n float64) { p.Messages, p.Bytes = ratio(p.Messages, n), ratio(p.Bytes, n) }

// stop disconnects the proxies and ends the server, where it is ours.
func (s *subject) stop() {
	if s == nil {
		return
	}
	if s.fleet != nil {
		s.fleet.Stop()
	}
	if s.process != nil {
		s.process.Stop(stopTime)
	}
}

const stopTime = 5 * time.Second
