package engine

import (
	"time"

	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Debounce holds events back until none has come for a while, as Istio does
// (PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX, PILOT_ENABLE_EDS_DEBOUNCE). The zero value holds
// nothing back: batches form while the last one is worked on.
type Debounce struct {
	After time.Duration // of quiet; 0: off
	Max   time.Duration // no event waits longer; 0: for ever
	// EndpointsPass has endpoints taken at once, with whatever waits.
	EndpointsPass bool
}

// wait is how long what waits must go on waiting; not above 0: it is due.
//
// Max counts from when the source saw the first event, also while a batch is worked on:
// events that have waited so long by its end are taken with the next breath, and are not
// held back anew. Batches are bounded, and with them how far beyond Max that can be.
func (d Debounce) wait(now time.Time, w store.Waiting) time.Duration {
	if d.After <= 0 || w.Objects == 0 || d.EndpointsPass && w.Endpoints > 0 {
		return 0
	}
	wait := d.After - now.Sub(w.Last)
	if d.Max > 0 {
		wait = min(wait, d.Max-now.Sub(w.First))
	}
	return wait
}

// takeWhenDue takes what waits, or has the timer call again.
func (e *Engine) takeWhenDue(timer *time.Timer) {
	if e.loaded.Load() {
		if wait := e.opts.Debounce.wait(time.Now(), e.opts.Intake.Waiting()); wait > 0 {
			timer.Reset(wait)
			return
		}
	}
	e.take()
}
