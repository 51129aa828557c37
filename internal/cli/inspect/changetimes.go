package inspect

import (
	"time"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// changeTimes are the lengths of a change's stages and their total, at one moment.
type changeTimes struct {
	stages  [changelog.NumStages]time.Duration
	total   time.Duration
	pending bool            // total is the time so far
	open    changelog.Stage // the stage in progress, whose length is the time so far; only if pending
}

// timesAt returns the times of a change. While it is not distributed, the stage in progress and the total count until now.
func timesAt(c *changelog.Change, now time.Time, unit time.Duration) changeTimes {
	var t changeTimes
	t.stages, t.total = c.Timeline.Split(unit)
	if c.State == changelog.Distributed {
		return t
	}
	t.pending, t.open = true, openStage(&c.Times)
	if waited := now.Sub(c.Observed).Round(unit); waited > t.total {
		t.stages[t.open] += waited - t.total
		t.total = waited
	}
	return t
}

// openStage returns the first stage that has not ended. The last one ends when a change is distributed.
func openStage(t *changelog.Times) changelog.Stage {
	switch {
	case !t.FirstSent.IsZero() || !t.LastAcked.IsZero():
		return changelog.StageAck
	case !t.Published.IsZero():
		return changelog.StageSend
	case !t.Derived.IsZero():
		return changelog.StageTranslate
	case !t.Stored.IsZero():
		return changelog.StageDerive
	}
	return changelog.StageStore
}

// stage returns the length of a stage in milliseconds, with > while it is in progress.
func (t *changeTimes) stage(s changelog.Stage) string {
	return atLeast(t.stages[s], t.pending && s == t.open)
}

// sum returns the total in milliseconds, with > while the change is on its way.
func (t *changeTimes) sum() string { return atLeast(t.total, t.pending) }

func atLeast(d time.Duration, open bool) string {
	if open {
		return ">" + millis(d)
	}
	return millis(d)
}
