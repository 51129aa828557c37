package propagation

import (
	"context"

	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// Limits of the plan for herds.
const (
	connectLimit        = 10.0 // seconds
	connectCPULimit     = 2.0  // x floor
	memoryLimit         = 20.0 // KiB beyond the floor's
	reconnectLimit      = 3.0  // x floor
	reconnectBytesLimit = 1 << 10
)

// connectHerd tells of the herd with which the session began.
func connectHerd(_ context.Context, s *session) (*Result, error) {
	r := s.connected
	r.bar("all configured", r.Subject.Last.P50/1000, connectLimit, "s")
	if r.Floor != nil && s.cp.pid != 0 {
		r.bar("CPU / floor", ratio(r.Subject.CPU.P50, r.Floor.CPU.P50), connectCPULimit, "x")
	}
	if r.Floor != nil && s.cp.process != nil {
		r.bar("memory of a proxy beyond the floor's", (r.Subject.ProxyMemory-r.Floor.ProxyMemory)/1024, memoryLimit, "KiB")
	}
	return &r, nil
}

// reconnectRepeats is how often both herds come back, in turn.
const reconnectRepeats = 5

// reconnectHerd kills the control plane, starts it again, and lets all proxies come back
// at once as it is ready. The floor's proxies come back with nothing and ask for nothing,
// which is the least that so many connections take.
func reconnectHerd(ctx context.Context, s *session) (*Result, error) {
	var back, bare []Sample
	for range reconnectRepeats {
		one, err := s.reconnect(ctx, &s.cp.subject, s.cp.fleet.Open, func() error {
			return s.startControlPlane(ctx, s.cp.process.Addr(), s.cp.process.HTTP())
		})
		if err != nil {
			return nil, err
		}
		back = append(back, one.Samples...)
		one, err = s.reconnect(ctx, &s.floor.subject, s.floor.fleet.OpenBare, func() error {
			return s.floor.start(ctx, s.floor.process.Addr(), s.floor.process.HTTP())
		})
		if err != nil {
			return nil, err
		}
		bare = append(bare, one.Samples...)
	}
	base := sideOf(bare)
	r := &Result{Subject: sideOf(back), Floor: &base}
	r.Note = "FLOOR is as many bare connects, without a list of what is held"
	r.barOver("all back / bare connect", last, bare, reconnectLimit)
	r.bar("bytes to a proxy", r.Subject.Concerned.Bytes, reconnectBytesLimit, "B")
	return r, nil
}

func (s *session) reconnect(ctx context.Context, who *subject, open func() *fleet.Round, start func() error) (Side, error) {
	who.fleet.Shut()
	who.process.Kill()
	if err := start(); err != nil {
		return Side{}, err
	}
	return s.herd(ctx, who, open)
}
