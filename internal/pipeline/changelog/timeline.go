package changelog

import (
	"encoding/json"
	"math"
	"time"
)

// Stage is one part of a change's way from its event to the last proxy's answer.
type Stage uint8

// The stages, in order. Each ends where the next begins, so that they add up to the whole.
const (
	StageStore     Stage = iota // from the first event until the store has the change: waiting and applying
	StageDerive                 // until what depends on it is derived
	StageTranslate              // until its resources are translated, encoded and in their tables
	StageSend                   // until the first response that holds it is on its way
	StageAck                    // until the last proxy that it concerns has answered
	NumStages
)

// Stages are all stages, in order.
var Stages = [NumStages]Stage{StageStore, StageDerive, StageTranslate, StageSend, StageAck}

// String is the stage's name in logs, metrics and JSON.
func (s Stage) String() string {
	return [NumStages]string{"store", "derive", "translate", "send", "ack"}[s]
}

// Timeline is when each stage ended, counted from the change's first event. A negative
// time is one that never came: nothing was sent, say, because it concerned no proxy.
type Timeline [NumStages]time.Duration

// never marks a stage that has not ended.
const never = time.Duration(-1)

// Split gives each stage's length in multiples of unit, and the whole.
//
// Invariant: the stages are never negative and add up to the whole exactly. Ends are
// rounded, not lengths; a stage that never ended has no length; and a stage that ended
// before the one before it (a fast stream reads its table before it is announced) ends
// with it.
func (t Timeline) Split(unit time.Duration) (stages [NumStages]time.Duration, total time.Duration) {
	for i, end := range t {
		if end = end.Round(unit); end > total {
			stages[i] = end - total
			total = end
		}
	}
	return stages, total
}

// Millis is a duration that is told in milliseconds, to the microsecond.
type Millis time.Duration

// MarshalJSON is a number of milliseconds.
func (m Millis) MarshalJSON() ([]byte, error) { return json.Marshal(m.Float()) }

// UnmarshalJSON reads a number of milliseconds.
func (m *Millis) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*m = Millis(math.Round(f*1e3) * float64(time.Microsecond))
	return nil
}

// Float is the number of milliseconds.
func (m Millis) Float() float64 {
	return math.Round(float64(m)/float64(time.Microsecond)) / 1e3
}
