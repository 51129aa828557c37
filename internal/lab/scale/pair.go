package scale

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// two measures two control planes on one mesh. One is killed, and its proxies connect to the other.
func two(ctx context.Context, s *subject, dir string, out experiment.Sample) error {
	first, err := s.open(ctx, dir)
	if err != nil {
		return err
	}
	defer first.Close()
	second := &session.Session{Config: first.Config, Dir: filepath.Join(dir, "second"), Location: first.Location, Mesh: first.Mesh}
	defer func() {
		second.Location.Place = nil // the first session clears it
		second.Close()
	}()
	if err := beginOther(ctx, second); err != nil {
		return err
	}
	for _, x := range []*session.Session{first, second} {
		if err := x.Connect(ctx, false); err != nil {
			return err
		}
	}
	note(out, &first.Connected.Subject)
	return failOver(ctx, s, first, second, out)
}

// beginOther begins a session whose proxies have other names than those of the first.
func beginOther(ctx context.Context, s *session.Session) error {
	if err := s.Begin(ctx); err != nil {
		return err
	}
	s.CP.Fleet.Stop()
	s.IDs = slices.Clone(s.IDs)
	for i := range s.IDs {
		s.IDs[i].Name += "-too"
	}
	s.CP.Fleet = fleet.NewFleet(fleet.NewCatalog(), s.FleetOptions(), s.IDs)
	s.CP.Fleet.Start(ctx)
	return nil
}

// failOver kills the second control plane and moves its proxies to the first.
func failOver(ctx context.Context, s *subject, first, second *session.Session, out experiment.Sample) error {
	moved := second.CP.Fleet
	moved.Shut()
	second.CP.Process.Kill()
	moved.Redirect(first.CP.Address())
	second.CP.Subject = first.CP.Subject
	second.CP.Fleet = moved
	defer func() { second.CP.Process = nil }() // the first session stops it
	back, err := second.ConnectAll(ctx, &second.CP.Subject, moved.Open)
	if err != nil {
		return err
	}
	out["reconnect"] = back.Last.P50 / 1000
	if err := s.routes(ctx, first, &second.CP.Subject, out); err != nil {
		return err
	}
	out["peak"] = float64(max(back.PeakRSS, first.CP.Memory().Peak)) / 1e6
	return lost(ctx, out, first, second)
}
