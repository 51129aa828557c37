package changelog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Operation is what happened to an object.
type Operation string

// The operations.
const (
	Created Operation = "created"
	Updated Operation = "updated"
	Deleted Operation = "deleted"
)

// ChangedObject is one object of a batch.
type ChangedObject struct {
	model.Key
	Operation       Operation `json:"operation"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Moved: it was for other proxies before (model.SameAudience).
	Moved bool `json:"moved,omitempty"`
	// Observed is when the source saw the first event that is part of this change.
	Observed time.Time `json:"observed,omitzero"`
	// Committed is when the API server stored it, if known.
	Committed time.Time `json:"committed,omitzero"`
}

// State is the progress of a change.
type State string

// The states.
const (
	Building     State = "building"     // not yet published
	Distributing State = "distributing" // some proxy has not answered yet
	Distributed  State = "distributed"  // every concerned proxy has answered or disconnected
)

// Change is one revision at one moment. It is a copy that readers must not change.
type Change struct {
	Revision model.Revision `json:"revision"`
	State    State          `json:"state"`
	// Objects are at most the first maxObjects of ObjectCount.
	Objects     []ChangedObject `json:"objects"`
	ObjectCount int             `json:"objectCount"`
	// Observed is the first event of the batch: the start of the clock.
	Observed time.Time `json:"observed"`
	Times    Times     `json:"times"`
	// Timeline is Times since Observed, in stages.
	Timeline Timeline `json:"stages"`
	// Superseded: no response was sent for this revision alone. Proxies that have it received it as
	// part of a newer one.
	Superseded bool `json:"superseded,omitempty"`

	Resources int     `json:"resources"` // that differ, in all tables
	Bytes     int64   `json:"bytes"`     // of these, encoded once
	Proxies   Proxies `json:"proxies"`
}

// Times are the moments at which steps ended; zero: not yet, or never.
type Times struct {
	Stored     time.Time `json:"stored,omitzero"`
	Derived    time.Time `json:"derived,omitzero"`
	Translated time.Time `json:"translated,omitzero"`
	Published  time.Time `json:"published,omitzero"`
	FirstSent  time.Time `json:"firstSent,omitzero"`
	LastAcked  time.Time `json:"lastAcked,omitzero"` // the last ACK or NACK
}

// Proxies counts the streams that were bound to the tables that a change touched.
type Proxies struct {
	Concerned    int `json:"concerned"`    // all of them
	Acked        int `json:"acked"`        // accepted it
	NotConcerned int `json:"notConcerned"` // do not subscribe to anything that changed
	Nacked       int `json:"nacked"`       // refused some of it
	Gone         int `json:"gone"`         // disconnected before they answered
	// Superseded: of Acked, those that received it together with a newer revision.
	Superseded int `json:"superseded,omitempty"`
}

// Waiting counts the streams that have not answered.
func (p Proxies) Waiting() int {
	return max(0, p.Concerned-p.Acked-p.NotConcerned-p.Nacked-p.Gone)
}

// Fraction is, for example, "10/11": the streams that have it, and those that subscribe to some of it and
// are still connected.
func (p Proxies) Fraction() string {
	return fmt.Sprintf("%d/%d", p.Acked, max(0, p.Concerned-p.NotConcerned-p.Gone))
}

// String is Fraction with the numbers of refusals and disconnected streams.
func (p Proxies) String() string {
	s := p.Fraction()
	if p.Nacked > 0 {
		s += fmt.Sprintf(" (%d refused)", p.Nacked)
	}
	if p.Gone > 0 {
		s += fmt.Sprintf(" (%d gone)", p.Gone)
	}
	return s
}

// Stage is one part of the time of a change, from its first event to the last proxy's answer.
type Stage uint8

// The stages, in order. Each begins where the previous one ends, so they add up to the total.
const (
	StageStore     Stage = iota // ends when the store has the change
	StageDerive                 // ends when everything that depends on it is derived
	StageTranslate              // ends when its resources are translated, encoded and in their tables
	StageSend                   // ends when the first response that contains it is sent
	StageAck                    // ends when the last concerned proxy has answered
	NumStages
)

// Stages are all stages, in order.
var Stages = [NumStages]Stage{StageStore, StageDerive, StageTranslate, StageSend, StageAck}

// String is the name of a stage in logs, metrics and JSON.
func (s Stage) String() string {
	return [NumStages]string{"store", "derive", "translate", "send", "ack"}[s]
}

// Timeline is when each stage ended, counted from the first event of the change. A negative time is a
// stage that never ended, for example because no proxy was concerned.
type Timeline [NumStages]time.Duration

// never marks a stage that has not ended.
const never = time.Duration(-1)

// Split returns the length of each stage, in multiples of unit, and the total.
//
// Invariant: lengths are never negative and add up to the total exactly. Ends are rounded, not lengths. A
// stage that never ended has length 0. A stage that ended before the previous one ends with it: a fast
// stream can read its table before it is woken.
func (t Timeline) Split(unit time.Duration) (stages [NumStages]time.Duration, total time.Duration) {
	for i, end := range t {
		if end = end.Round(unit); end > total {
			stages[i] = end - total
			total = end
		}
	}
	return stages, total
}

// timelineJSON is the JSON form of a Timeline: lengths in milliseconds, which add up to the total.
type timelineJSON struct {
	Store     Millis `json:"storeMs"`
	Derive    Millis `json:"deriveMs"`
	Translate Millis `json:"translateMs"`
	Send      Millis `json:"sendMs"`
	Ack       Millis `json:"ackMs"`
	Total     Millis `json:"totalMs"`
}

// MarshalJSON writes the lengths of the stages in milliseconds.
func (t Timeline) MarshalJSON() ([]byte, error) {
	s, total := t.Split(time.Microsecond)
	return json.Marshal(timelineJSON{
		Millis(s[StageStore]), Millis(s[StageDerive]), Millis(s[StageTranslate]),
		Millis(s[StageSend]), Millis(s[StageAck]), Millis(total),
	})
}

// UnmarshalJSON reads the lengths of the stages.
func (t *Timeline) UnmarshalJSON(b []byte) error {
	var j timelineJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	var end time.Duration
	for i, d := range [NumStages]Millis{j.Store, j.Derive, j.Translate, j.Send, j.Ack} {
		end += time.Duration(d)
		t[i] = end
	}
	return nil
}

// Millis is a duration that is written in milliseconds, to the microsecond.
type Millis time.Duration

// MarshalJSON writes a number of milliseconds.
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

// loggedObjects is how many objects a log line names.
const loggedObjects = 3

// Summary names the first n objects: "Service/shop/reviews,Pod/shop/a,+3".
func (c *Change) Summary(n int) string {
	var b strings.Builder
	for i, o := range c.Objects[:min(n, len(c.Objects))] {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(o.Key.String())
	}
	if rest := c.ObjectCount - min(n, len(c.Objects)); rest > 0 {
		fmt.Fprintf(&b, ",+%d", rest)
	}
	return b.String()
}

// logUnit is the precision of log lines and tables.
const logUnit = 100 * time.Microsecond

// Attrs returns the change as attributes of one log line. The lengths of the stages add up to the total.
func (c *Change) Attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("rev", uint64(c.Revision)), slog.String("objects", c.Summary(loggedObjects))}
	stages, total := c.Timeline.Split(logUnit)
	for _, s := range Stages {
		attrs = append(attrs, slog.String(s.String(), FormatMillis(stages[s])))
	}
	attrs = append(attrs, slog.String("total", FormatMillis(total)),
		slog.Int("resources", c.Resources), slog.Int64("bytes", c.Bytes),
		slog.String("proxies", c.Proxies.Fraction()))
	for _, n := range []struct {
		name  string
		count int
	}{{"nacked", c.Proxies.Nacked}, {"gone", c.Proxies.Gone}, {"waiting", c.Proxies.Waiting()}} {
		if n.count > 0 {
			attrs = append(attrs, slog.Int(n.name, n.count))
		}
	}
	return attrs
}

// FormatMillis writes milliseconds to a tenth: "0.1ms".
func FormatMillis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + "ms"
}
