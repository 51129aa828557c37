package status

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// maxMeant is how many objects may be told that one of them is meant by a refusal. Where it
// could be any of more, none is: `moonsail proxies` tells what is refused.
const maxMeant = 16

// Timing of what is looked for.
const (
	// lookEvery is how soon a refusal is noticed.
	lookEvery = time.Second
	// recountEvery is how often it is said that more or fewer proxies refuse something.
	recountEvery = 15 * time.Second
	// analyzeShare bounds what analysis costs: one part in so many of a CPU's time.
	analyzeShare = 50
	// answerWithin is how long a proxy that does not answer keeps an object from being
	// accepted.
	answerWithin = 30 * time.Second
)

// checker finds out what is wrong between objects, and what proxies refuse.
type checker struct {
	board  *Board
	here   *Reporter
	others *Others     // nil: this control plane is alone
	mesh   *model.Mesh // that the control plane was started with

	analyzed      model.Revision // what is on the board
	gatewayObject int            // likewise: what was seen of the Gateway API's objects
	due           time.Time      // of the next analysis
	told          map[model.Key]refusal
	recount       time.Time // when numbers of proxies are told again
}

// run looks until ctx ends. It calls first once it has looked at everything.
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
	snap, doubts := c.here.Snapshot(), c.board.doubtful()
	q := &question{}
	for _, d := range doubts[:min(len(doubts), maxReported)] {
		q.Doubtful = append(q.Doubtful, d.key)
	}
	reports, all := c.ask(ctx, q)
	if ctx.Err() != nil {
		return
	}
	c.board.setRefused(c.refused(snap, reports, now))
	for i, k := range q.Doubtful {
		if all && c.accepted(doubts[i], c.stand(snap, k, i, reports)) {
			c.board.accept(k)
		}
	}
	if (snap.Revision != c.analyzed || c.board.outlinesSeen() != c.gatewayObject) && !now.Before(c.due) {
		c.analyze(snap)
		c.due = now.Add(max(lookEvery, analyzeShare*time.Since(now)))
	}
}

func (c *checker) analyze(snap *store.Snapshot) {
	if snap.Revision != c.analyzed {
		problems := across(snap, c.mesh.Domain)
		given, lacking := index.AutoAddresses(c.mesh, snap)
		for _, l := range lacking {
			problems[l.Entry] = append(problems[l.Entry], problem.Problem{Severity: problem.SeverityWarning, Object: l.Entry, Message: l.String()})
		}
		c.board.setAcross(problems)
		if !c.mesh.AutoAddresses.Off {
			c.board.setAddresses(addresses(snap, given))
		}
		c.analyzed = snap.Revision
	}
	objects, count := c.board.outlines()
	c.board.setJudged(judgeGateways(snap, objects))
	c.gatewayObject = count
}

// ask asks the others; all tells whether they have answered.
func (c *checker) ask(ctx context.Context, q *question) (reports []*report, all bool) {
	if c.others == nil {
		return nil, true
	}
	return c.others.ask(ctx, q)
}

// stand is how an object stands here and with each of the others.
func (c *checker) stand(snap *store.Snapshot, k model.Key, i int, reports []*report) []standing {
	out := []standing{c.here.standing(snap, k)}
	for _, r := range reports {
		out = append(out, r.Stand[i])
	}
	return out
}

// across analyzes everything, and gives what concerns anybody by object.
func across(snap *store.Snapshot, domain string) map[model.Key]problem.List {
	var objects []model.Object
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			objects = append(objects, o)
		}
	}
	out := map[model.Key]problem.List{}
	for _, p := range analyze.Check(objects, domain) {
		if p.Severity != problem.SeverityInfo {
			out[p.Object] = append(out[p.Object], p)
		}
	}
	return out
}

// refused is what proxies refuse, by the objects that it was made of. Where only numbers
// differ from what was told, that waits: every proxy that comes or goes would be a write.
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
		if old, told := c.told[k]; told && !recount && old.what == r.what && old.message == r.message {
			out[k] = old
		}
	}
	c.told = out
	return out
}

// joined is two refusals of an object as one: the first in order stands for all.
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

// accepted tells whether proxies have taken an object that was refused: some of them, where
// it is as it was; where it was changed, all that answer.
func (c *checker) accepted(d doubtful, stand []standing) bool {
	acked, concerned := 0, 0
	for i := range stand {
		s := &stand[i]
		if !s.Known || s.Content != stand[0].Content || s.Counts.Refused > 0 {
			return false
		}
		if s.Counts.Behind > 0 && time.Duration(s.AgeMillis)*time.Millisecond < answerWithin {
			return false
		}
		acked, concerned = acked+s.Counts.Acked, concerned+s.Concerned
	}
	return acked > 0 || d.changed && concerned == 0
}
