package propagation

import (
	"context"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Targets for connect-storm and reconnect-storm.
const (
	connectLimit        = 10.0 // seconds
	connectCPULimit     = 2.0  // x baseline
	memoryLimit         = 20.0 // KiB beyond the baseline's
	reconnectLimit      = 3.0  // x baseline
	reconnectBytesLimit = 1 << 10
)

// connectStorm returns the result of the connections with which the session began.
func connectStorm(_ context.Context, s *meshSession) (*results.Result, error) {
	r := s.Connected
	r.AddTarget("all configured", r.Subject.Last.P50/1000, connectLimit, "s")
	if r.Baseline != nil && s.CP.PID != 0 {
		r.AddTarget("CPU / baseline", results.Ratio(r.Subject.CPU.P50, r.Baseline.CPU.P50), connectCPULimit, "x")
	}
	if r.Baseline != nil && s.CP.Process != nil {
		r.AddTarget("memory of a proxy beyond the baseline's", (r.Subject.ProxyMemory-r.Baseline.ProxyMemory)/1024, memoryLimit, "KiB")
	}
	return &r, nil
}

// reconnectRepeats is how often the proxies of both servers reconnect, in turn.
const reconnectRepeats = 5

// reconnectStorm kills the control plane, starts it again, and reconnects all proxies at once when it is ready.
// The baseline's proxies connect without versions and subscriptions, which is the least cost of so many
// connections.
func reconnectStorm(ctx context.Context, s *meshSession) (*results.Result, error) {
	var back, bare []results.Sample
	for range reconnectRepeats {
		one, err := s.reconnect(ctx, &s.CP.Subject, s.CP.Fleet.Open, func() error {
			return s.StartControlPlane(ctx, s.CP.Process.Addr(), s.CP.Process.HTTP())
		})
		if err != nil {
			return nil, err
		}
		back = append(back, one.Samples...)
		one, err = s.reconnect(ctx, &s.Baseline.Subject, s.Baseline.Fleet.OpenBare, func() error {
			return s.Baseline.Start(ctx, s.Baseline.Process.Addr(), s.Baseline.Process.HTTP())
		})
		if err != nil {
			return nil, err
		}
		bare = append(bare, one.Samples...)
	}
	base := results.SideOf(bare)
	r := &results.Result{Subject: results.SideOf(back), Baseline: &base}
	r.Note = "BASELINE: as many connections without subscriptions"
	r.AddRatioTarget("all reconnected / connections only", results.LastOf, bare, reconnectLimit)
	r.AddTarget("bytes to a proxy", r.Subject.Concerned.Bytes, reconnectBytesLimit, "B")
	return r, nil
}

func (s *meshSession) reconnect(ctx context.Context, who *session.Subject, open func() *fleet.Round, start func() error) (results.Side, error) {
	who.Fleet.Shut()
	who.Process.Kill()
	if err := start(); err != nil {
		return results.Side{}, err
	}
	return s.ConnectAll(ctx, who, open)
}
