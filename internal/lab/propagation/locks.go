package propagation

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

const (
	lockLimit = 1.0 // per cent of the wall time
	topLocks  = 8
)

// locks is the storm once more, on a control plane that writes down every wait for a
// lock, and each of a microsecond and more for a channel. That costs time itself, so that
// the storm's bars are measured without it.
func locks(ctx context.Context, o *Options, dir string) (*Result, error) {
	with := *o
	with.ServeFlags = append(slices.Clone(o.ServeFlags), "--profile-mutex=1", "--profile-block=1us")
	o.progress("locks: starting")
	s, err := openSession(ctx, &with, filepath.Join(dir, "locks"), o.Meshes[len(o.Meshes)/2])
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.connect(ctx, false); err != nil {
		return nil, err
	}
	o.progress("locks: %d events", o.StormEvents)
	r, err := s.lockedStorm(ctx)
	if err != nil {
		return nil, err
	}
	r.Mesh = s.mesh.Shape
	r.State, err = s.finalState(ctx)
	return r, err
}

// lockedStorm makes a storm between two looks at the profiles.
func (s *session) lockedStorm(ctx context.Context) (*Result, error) {
	measure, err := s.prepareStorm(stormOrder(0, s.opts.StormEvents, s.mesh.Services))
	if err != nil {
		return nil, err
	}
	before, err := s.contention(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	sample, err := measure(ctx)
	if err != nil {
		return nil, err
	}
	wall := time.Since(begun)
	after, err := s.contention(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{Subject: sideOf([]Sample{sample}), Note: fmt.Sprintf("%d events over %d services, every wait for a lock written down", s.opts.StormEvents, s.mesh.Services)}
	r.Subject.PeakRSS = s.cp.memory().Peak
	r.Waits, r.Profiles = waitsOf(before.waits, after.waits, wall), after.profiles
	longest := 0.0
	for _, w := range r.Waits {
		if w.Lock {
			longest = max(longest, w.Share)
		}
	}
	r.bar("waits for the worst lock / wall time", longest, lockLimit, "%")
	return r, nil
}

// contention is what the control plane has written down since its start.
type contention struct {
	waits    [2][]child.Wait   // for locks, and for everything
	profiles map[string][]byte // pprof's, by file name
}

func (s *session) contention(ctx context.Context) (c contention, err error) {
	c.profiles = map[string][]byte{}
	for i, name := range []string{"mutex", "block"} {
		if c.waits[i], c.profiles[name+".pb.gz"], err = child.Waits(ctx, s.cp.process.HTTP(), name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// waitsOf are the longest waits between two looks, locks first.
func waitsOf(before, after [2][]child.Wait, wall time.Duration) []Wait {
	var out []Wait
	for i := range after {
		was := map[string]child.Wait{}
		for _, w := range before[i] {
			was[w.Where] = w
		}
		var list []Wait
		for _, w := range after[i] {
			d := w.Time - was[w.Where].Time
			if n := w.Count - was[w.Where].Count; n > 0 {
				list = append(list, Wait{Lock: i == 0, Where: w.Where, Count: n, Time: millis(d), Share: 100 * ratio(d.Seconds(), wall.Seconds())})
			}
		}
		slices.SortFunc(list, func(a, b Wait) int { return cmp.Compare(b.Time, a.Time) })
		out = append(out, list[:min(len(list), topLocks)]...)
	}
	return out
}
