package changelog

import (
	"encoding/json"
	"fmt"
	"log/slog"
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
	// Committed is when the API server had it, where that is known.
	Committed time.Time `json:"committed,omitzero"`
}

// State is how far a change has come.
type State string

// The states.
const (
	Building     State = "building"     // not yet published
	Distributing State = "distributing" // some proxy has not answered yet
	Distributed  State = "distributed"  // every proxy concerned has answered or is gone
)

// Change is what is known of one revision at one moment. It is a copy: nobody changes it.
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
	// Superseded says that no response was sent for this revision alone: where it
	// reached proxies, it was part of a newer one's.
	Superseded bool `json:"superseded,omitempty"`

	Resources int     `json:"resources"` // that differ, over all tables
	Bytes     int64   `json:"bytes"`     // of those, encoded once
	Proxies   Proxies `json:"proxies"`
}

// Times are moments on the way; zero where it has not come (or never will).
type Times struct {
	Stored     time.Time `json:"stored,omitzero"`
	Derived    time.Time `json:"derived,omitzero"`
	Translated time.Time `json:"translated,omitzero"`
	Published  time.Time `json:"published,omitzero"`
	FirstSent  time.Time `json:"firstSent,omitzero"`
	LastAcked  time.Time `json:"lastAcked,omitzero"` // or NACKed: the last answer
}

// Proxies counts the streams that were bound to the tables which a change touched.
type Proxies struct {
	Concerned    int `json:"concerned"`    // all of them
	Acked        int `json:"acked"`        // have it
	NotConcerned int `json:"notConcerned"` // turned out not to subscribe to anything that changed
	Nacked       int `json:"nacked"`       // refused some of it
	Gone         int `json:"gone"`         // disconnected before they answered
	// Superseded: of Acked, those that got it together with a newer revision.
	Superseded int `json:"superseded,omitempty"`
}

// Waiting is how many have not answered.
func (p Proxies) Waiting() int {
	return max(0, p.Concerned-p.Acked-p.NotConcerned-p.Nacked-p.Gone)
}

// Fraction is "10/11": those that have it, of those that it really concerned and that
// are still there.
func (p Proxies) Fraction() string {
	return fmt.Sprintf("%d/%d", p.Acked, max(0, p.Concerned-p.NotConcerned-p.Gone))
}

// String is Fraction and what else there is to say.
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

// timelineJSON is the JSON of a Timeline: lengths in milliseconds, that add up to total.
type timelineJSON struct {
	Store     Millis `json:"storeMs"`
	Derive    Millis `json:"deriveMs"`
	Translate Millis `json:"translateMs"`
	Send      Millis `json:"sendMs"`
	Ack       Millis `json:"ackMs"`
	Total     Millis `json:"totalMs"`
}

// MarshalJSON is the stages' lengths in milliseconds.
func (t Timeline) MarshalJSON() ([]byte, error) {
	s, total := t.Split(time.Microsecond)
	return json.Marshal(timelineJSON{
		Millis(s[StageStore]), Millis(s[StageDerive]), Millis(s[StageTranslate]),
		Millis(s[StageSend]), Millis(s[StageAck]), Millis(total),
	})
}

// UnmarshalJSON reads the stages' lengths.
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

// loggedObjects is how many objects a log line names.
const loggedObjects = 3

// Summary names the first n objects: "Service/shop/reviews, Pod/shop/a, +3".
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

// logUnit is the precision of log lines and tables for people.
const logUnit = 100 * time.Microsecond

// Attrs is the change as attributes of one log line. The stages' numbers add up to total.
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

// FormatMillis is "0.1ms": milliseconds to a tenth.
func FormatMillis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + "ms"
}
