package status

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// maxMeant is the maximum number of objects that get a status about a refusal which may be about any of
// them. With more, none gets one: `moonsail proxies` shows the refusal.
const maxMeant = 16

// Intervals and limits.
const (
	// lookEvery is the interval of looking for refusals.
	lookEvery = time.Second
	// recountEvery is the interval of updating the number of proxies in statuses.
	recountEvery = 15 * time.Second
	// analyzeShare bounds the cost of analysis: one part in this many of a CPU's time.
	analyzeShare = 50
	// answerWithin is how long a proxy without an answer keeps an object from counting as accepted.
	answerWithin = 30 * time.Second
)

// checker finds problems between objects, and what proxies refuse.
type checker struct {
	tracker *Tracker
	here    *Reporter
	others  *Others     // nil: this control plane is alone
	mesh    *model.Mesh // of the start

	analyzed      model.Revision // revision of the analysis on the Tracker
	gatewayObject int            // count of Gateway API objects in it
	due           time.Time      // time of the next analysis
	reported      map[model.Key]refusal
	recount       time.Time // time of the next update of numbers of proxies
}

// run looks until ctx ends. It calls first after the first look.
func (c *checker) run(ctx context.Context, first func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		c.look(ctx, time.Now())
		first()
		first = func() {}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *checker) look(ctx context.Context, now time.Time) {
	snap, doubts := c.here.Snapshot(), c.tracker.doubtful()
	q := &question{}
	for _, d := range doubts[:min(len(doubts), maxReported)] {
		q.Doubtful = append(q.Doubtful, d.key)
	}
	reports, all := c.ask(ctx, q)
	if ctx.Err() != nil {
		return
	}
	c.tracker.setRefused(c.refused(snap, reports, now))
	for i, k := range q.Doubtful {
		if all && c.accepted(doubts[i], c.states(snap, k, i, reports)) {
			c.tracker.accept(k)
		}
	}
	began := time.Now() // not now: the other control planes may have answered slowly
	if (snap.Revision != c.analyzed || c.tracker.gatewayObjectsSeen() != c.gatewayObject) && !began.Before(c.due) {
		c.analyze(snap)
		c.due = began.Add(max(lookEvery, analyzeShare*time.Since(began)))
	}
}

func (c *checker) analyze(snap *store.Snapshot) {
	if snap.Revision != c.analyzed {
		problems := crossCheck(snap, c.mesh)
		assigned, lacking := index.AutoAddresses(c.mesh, snap)
		for _, l := range lacking {
			problems[l.Entry] = append(problems[l.Entry], problem.Problem{Severity: problem.SeverityWarning, Code: code.AddressesExhausted, Object: l.Entry, Message: l.String()})
		}
		c.tracker.setCrossChecks(problems)
		if !c.mesh.AutoAddresses.Off {
			c.tracker.setAddresses(addresses(snap, assigned))
		}
		c.analyzed = snap.Revision
	}
	c.tracker.setBalancers(balancers(snap, c.mesh))
	objects, count := c.tracker.gatewayObjects()
	c.tracker.setJudged(judgeGateways(snap, objects))
	c.gatewayObject = count
}

// ask asks the other control planes. all is set if each has answered.
func (c *checker) ask(ctx context.Context, q *question) (reports []*report, all bool) {
	if c.others == nil {
		return nil, true
	}
	return c.others.ask(ctx, q)
}

// states returns the state of an object here and on each of the other control planes.
func (c *checker) states(snap *store.Snapshot, k model.Key, i int, reports []*report) []objectState {
	out := []objectState{c.here.objectState(snap, k)}
	for _, r := range reports {
		out = append(out, r.Stand[i])
	}
	return out
}

// crossCheck analyzes all objects, and returns warnings and errors by object.
func crossCheck(snap *store.Snapshot, mesh *model.Mesh) map[model.Key]problem.List {
	var objects []model.Object
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			objects = append(objects, o)
		}
	}
	out := map[model.Key]problem.List{}
	for _, p := range analyze.CheckAll(analyze.Input{Objects: objects, Root: mesh.RootNamespace}, mesh.Domain) {
		if p.Severity != problem.SeverityInfo {
			out[p.Object] = append(out[p.Object], p)
		}
	}
	return out
}

// refused returns what proxies refuse, by the objects that it is made from. If only the number of proxies
// differs, the update waits: otherwise each proxy that comes or goes would cause a write.
func (c *checker) refused(snap *store.Snapshot, reports []*report, now time.Time) map[model.Key]refusal {
	out := c.here.refused(snap)
	for _, r := range reports {
		r.add(out, snap)
	}
	recount := !now.Before(c.recount)
	if recount {
		c.recount = now.Add(recountEvery)
	}
	for k, r := range out {
		if old, found := c.reported[k]; found && !recount && old.what == r.what && old.message == r.message {
			out[k] = old
		}
	}
	c.reported = out
	return out
}

// joined merges two refusals of an object. The first in order stands for both.
func joined(a, b refusal) refusal {
	switch {
	case a.proxies == 0:
		return b
	case b.what < a.what || b.what == a.what && b.message < a.message:
		a, b = b, a
	}
	a.others += 1 + b.others
	a.proxies = max(a.proxies, b.proxies)
	return a
}

// accepted reports whether proxies accepted an object that was refused: some of them if it did not change,
// and otherwise all that answer.
func (c *checker) accepted(d doubtful, states []objectState) bool {
	acked, concerned := 0, 0
	for i := range states {
		s := &states[i]
		if !s.Known || s.Content != states[0].Content || s.Counts.Refused > 0 {
			return false
		}
		if s.Counts.Behind > 0 && time.Duration(s.AgeMillis)*time.Millisecond < answerWithin {
			return false
		}
		acked, concerned = acked+s.Counts.Acked, concerned+s.Concerned
	}
	return acked > 0 || d.changed && concerned == 0
}
