package chaos

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// lastChanges are made one by one after the last fault.
const lastChanges = 6

// settle waits until everything is ACKed after the last fault. Later requests must find the last states.
func (r *run) settle(ctx context.Context, report *Report) error {
	r.options.progress("waiting for the last ACKs")
	if err := r.repair(ctx); err != nil {
		return err
	}
	from := time.Now()
	if err := r.awaitQuiet(ctx, quietTime); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.found(violation{At: time.Now(), Kind: "stale", Subject: "mesh", Text: err.Error()})
	}
	report.QuietAfter = time.Since(from).Seconds()
	if err := r.lastBurst(ctx); err != nil {
		return err
	}
	if err := r.lastChanges(ctx); err != nil {
		return err
	}
	if err := clock.Sleep(ctx, calmTime); err != nil {
		return err
	}
	r.traffic.stop()
	return nil
}

// lastChanges makes some changes one after the other, each when all proxies have the one before. No other change can make
// proxies receive one that was forgotten. Nor can a question: control planes are asked only once the Envoys have the change.
func (r *run) lastChanges(ctx context.Context) error {
	services := r.mesh.services()
	for i := range lastChanges {
		object := "endpoints/" + services[i%len(services)]
		state := "v1"
		if r.history.newest(object).state == state {
			state = "v1,v2"
		}
		a := Action{At: time.Since(r.began), What: write, Target: object, State: state}
		err := r.acks.unasked(func() error {
			r.record(a, func(*event) error { return r.write(ctx, object, state) })
			if err := r.broken(); err != nil {
				return err
			}
			r.stale(ctx, object, r.acks.arrive(ctx, object))
			return nil
		})
		if err != nil {
			return err
		}
		r.stale(ctx, object, r.awaitQuiet(ctx, quietTime))
	}
	return ctx.Err()
}

// stale records a change that did not arrive in time.
func (r *run) stale(ctx context.Context, object string, err error) {
	if err != nil && ctx.Err() == nil {
		r.found(violation{At: time.Now(), Kind: "stale", Subject: object, Text: "a change without any fault: " + err.Error()})
	}
}

// Objects that are deleted right after their creation, while a control plane does not read: the last changes have many of
// them, which the control plane then receives together.
const (
	briefGroup   = "noise/brief"
	briefObjects = 60
)

// lastBurst creates and deletes objects while each control plane in turn is stopped. None of them may stay.
func (r *run) lastBurst(ctx context.Context) error {
	for _, p := range r.mesh.planes {
		a := Action{At: time.Since(r.began), What: burst, Target: briefGroup, State: brief, Count: briefObjects}
		resume, err := pause(p.pid())
		if err != nil {
			return err
		}
		r.burst(ctx, a)
		resume()
		if err := r.broken(); err != nil {
			return err
		}
		r.stale(ctx, briefGroup, r.awaitQuiet(ctx, quietTime))
	}
	return ctx.Err()
}

// repair replaces invalid objects, and those that Envoy refuses: what is in force instead depends on what a control plane or
// an Envoy has seen before, so that new ones would differ.
func (r *run) repair(ctx context.Context) error {
	for _, object := range slices.Sorted(maps.Keys(r.mesh.objects())) {
		if state, ok := map[string]string{invalid: split, unacceptable: none}[r.history.newest(object).state]; ok {
			a := Action{At: time.Since(r.began), What: write, Target: object, State: state}
			r.record(a, func(*event) error { return r.write(ctx, object, state) })
		}
	}
	return r.broken()
}
