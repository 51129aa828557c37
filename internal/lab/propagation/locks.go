package propagation

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

const (
	lockLimit = 1.0 // per cent of elapsed time
	topLocks  = 8
)

// locks repeats the storm on a control plane that records every wait for a lock, and waits of at least a microsecond
// for channels. Recording costs time, so that the targets of the storm are measured without it.
func locks(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	with := *o
	with.ServeFlags = append(slices.Clone(o.ServeFlags), "--profile-mutex=1", "--profile-block=1us")
	o.progress("locks: starting")
	s, err := openMeshSession(ctx, &with, filepath.Join(dir, "locks"), o.Meshes[len(o.Meshes)/2])
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Connect(ctx, false); err != nil {
		return nil, err
	}
	o.progress("locks: %d events", o.StormEvents)
	r, err := s.lockedStorm(ctx)
	if err != nil {
		return nil, err
	}
	r.Mesh = s.Mesh.Shape
	r.State, err = s.FinalState(ctx)
	return r, err
}

// lockedStorm makes a storm between two reads of the profiles.
func (s *meshSession) lockedStorm(ctx context.Context) (*results.Result, error) {
	measure, err := s.prepareStorm(stormOrder(0, s.opts.StormEvents, s.Mesh.Services))
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
	r := &results.Result{Subject: results.SideOf([]results.Sample{sample}), Note: fmt.Sprintf("%d events over %d services, every wait for a lock recorded", s.opts.StormEvents, s.Mesh.Services)}
	r.Subject.PeakRSS = s.CP.Memory().Peak
	r.Waits, r.Profiles = waitsOf(before.waits, after.waits, wall), after.profiles
	longest := 0.0
	for _, w := range r.Waits {
		if w.Lock {
			longest = max(longest, w.Share)
		}
	}
	r.AddTarget("waits for the worst lock / elapsed time", longest, lockLimit, "%")
	return r, nil
}

// contention has the waits that the control plane has recorded since its start.
type contention struct {
	waits    [2][]child.Wait   // for locks, and all
	profiles map[string][]byte // pprof's, by file name
}

func (s *meshSession) contention(ctx context.Context) (c contention, err error) {
	c.profiles = map[string][]byte{}
	for i, name := range []string{"mutex", "block"} {
		if c.waits[i], c.profiles[name+".pb.gz"], err = child.Waits(ctx, s.CP.Process.HTTP(), name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// waitsOf returns the longest waits between two reads, locks first.
func waitsOf(before, after [2][]child.Wait, wall time.Duration) []results.Wait {
	var out []results.Wait
	for i := range after {
		was := map[string]child.Wait{}
		for _, w := range before[i] {
			was[w.Where] = w
		}
		var list []results.Wait
		for _, w := range after[i] {
			d := w.Time - was[w.Where].Time
			if n := w.Count - was[w.Where].Count; n > 0 {
				list = append(list, results.Wait{Lock: i == 0, Where: w.Where, Count: n, Time: results.Millis(d), Share: 100 * results.Ratio(d.Seconds(), wall.Seconds())})
			}
		}
		slices.SortFunc(list, func(a, b results.Wait) int { return cmp.Compare(b.Time, a.Time) })
		out = append(out, list[:min(len(list), topLocks)]...)
	}
	return out
}
