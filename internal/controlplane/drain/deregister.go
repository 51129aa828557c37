package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Deregister is the Method. It answers once every proxy that had the workload's endpoints has
// ACKed that they went; those that do not in time are named.
func (k *Registry) Deregister(ctx context.Context, request []byte) ([]byte, error) {
	return k.LeaveIf(func(context.Context, *model.Proxy) error { return nil })(ctx, request)
}

// LeaveIf is the Method for callers that are known: may tells whether who calls may have a
// workload leave, with all its addresses. Its errors are gRPC's statuses.
func (k *Registry) LeaveIf(may func(context.Context, *model.Proxy) error) server.Unary {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		q, p, err := decode(request)
		if err == nil {
			err = may(ctx, p)
		}
		if err != nil {
			return nil, err
		}
		return k.answer(ctx, q, p)
	}
}

func (k *Registry) answer(ctx context.Context, q *Request, p *model.Proxy) ([]byte, error) {
	if q.Stay {
		return k.withdrawEverywhere(ctx, q, p)
	}
	m, fresh, err := k.admit(p, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.wait())
	defer cancel()
	a, err := k.leave(ctx, q, p, m, fresh)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// admit notes that p leaves since then, unless another instance of it is connected.
func (k *Registry) admit(p *model.Proxy, since time.Time) (m *mark, fresh bool, err error) {
	if s, ok := k.Proxies.Proxy(p.ID); ok && s.Proxy.Instance != p.Instance {
		return nil, false, server.Refused("another instance of %s is connected than the one that asks: that one is not ended by this", p)
	}
	return k.mark(p, since)
}

// withdrawEverywhere has a workload stay, here and with all peers that answer.
func (k *Registry) withdrawEverywhere(ctx context.Context, q *Request, p *model.Proxy) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, q.wait())
	defer cancel()
	k.stay(p, "its sidecar says so")
	a := &(<-k.pass(ctx, q, p)).Answer
	a.Pending = false
	return json.Marshal(a)
}

// leave waits for the mark to be known to everybody, here and elsewhere.
func (k *Registry) leave(ctx context.Context, q *Request, p *model.Proxy, m *mark, fresh bool) (*Answer, error) {
	start := time.Now()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	others := k.pass(asking, q, p) // before anything here is waited for
	if err := k.begin(ctx, m, fresh); err != nil {
		cancel()
		<-others
		return nil, err
	}
	a, err := k.everywhere(ctx, q, p, m, others)
	if err != nil {
		return nil, err
	}
	a.Revision = m.rev
	a.Lacking = a.Lacking[:min(maxNamed, len(a.Lacking))]
	a.TookMillis = float64(time.Since(start).Microseconds()) / 1000
	level := slog.LevelDebug // it says so again
	if fresh {
		level = slog.LevelInfo
	}
	k.Log.Log(ctx, level, "workload leaves", "workload", p.String(), "rev", m.rev, "acked", a.ACKed, "lacking", a.LackCount,
		"disconnected", a.Disconnected, "peers", a.Peers, "took", time.Since(start).Round(10*time.Microsecond))
	return a, nil
}

// everywhere joins what is known here with what the others say, until nobody is waited for
// any more, or ctx ends.
func (k *Registry) everywhere(ctx context.Context, q *Request, p *model.Proxy, m *mark, others <-chan *elsewhere) (*Answer, error) {
	for {
		a, o := k.here(ctx, p, m), <-others
		if o.refused != nil {
			k.withdraw(m, "another one has connected to another control plane")
			return nil, o.refused
		}
		a.LackCount = len(a.Lacking)
		a.add(&o.Answer)
		// Those whose control plane does not answer go first: they are many.
		slices.SortStableFunc(a.Lacking, func(a, b Lacking) int { return cmp.Compare(unknownFirst(&a), unknownFirst(&b)) })
		if ctx.Err() != nil || !a.Pending && o.calm {
			return a, nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done(): // the next round says so
		}
		others = k.pass(ctx, q, p)
	}
}

func unknownFirst(l *Lacking) int {
	if l.Position == PositionUnknown {
		return 0
	}
	return 1
}

// here waits for the proxies of this control plane.
func (k *Registry) here(ctx context.Context, p *model.Proxy, m *mark) *Answer {
	k.mu.Lock()
	m.answered = true
	k.mu.Unlock()
	revs := k.revisions(m)
	for _, rev := range revs {
		if k.Changes.Await(ctx, rev) != nil {
			break // the time is over: who lacks it is told
		}
	}
	return k.await(ctx, p, revs)
}

// begin waits until the mark has a revision.
func (k *Registry) begin(ctx context.Context, m *mark, fresh bool) error {
	if fresh {
		f := k.Changes.Follow(m.departure.Key)
		defer f.Stop()
		k.put(m)
		select {
		case m.rev = <-f.Began():
			close(m.began)
		case <-m.withdrawn:
		case <-ctx.Done():
			k.withdraw(m, "it came to nothing in time")
		}
	}
	select {
	case <-m.began:
		return nil
	case <-m.withdrawn:
		return server.Unavailable("the departure of %s was withdrawn before it was known", m.departure.Name)
	case <-ctx.Done():
		return server.Unavailable("the control plane does not come to it")
	}
}

// put gives a mark to the intake, unless it was withdrawn meanwhile.
func (k *Registry) put(m *mark) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.marks[m.departure.Key] == m {
		k.Intake.Put(store.Event{Key: m.departure.Key, Object: m.departure, Observed: m.since, Urgent: true})
	}
}

// revisions are those that took a workload's endpoints away: the mark's, and what the source
// itself has removed before and is perhaps still on its way.
func (k *Registry) revisions(m *mark) []model.Revision {
	out := []model.Revision{m.rev}
	for _, r := range k.Changes.RemovedEndpoints(0) {
		if r.Revision < m.rev && slices.Contains(m.departure.Addresses, r.Address) && m.since.Sub(r.Observed) < MaxWait {
			out = append(out, r.Revision)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lookEvery is how often it is looked whether proxies are back that were disconnected.
const lookEvery = 10 * time.Millisecond

// await looks who knows of revisions, until nobody lacks them whom it is worth to wait for.
func (k *Registry) await(ctx context.Context, p *model.Proxy, revs []model.Revision) *Answer {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		a := k.look(p, revs)
		if !a.Pending && k.calm() {
			return a
		}
		select {
		case <-ctx.Done():
			return a
		case <-tick.C:
		}
	}
}

// look looks once.
func (k *Registry) look(p *model.Proxy, revs []model.Revision) *Answer {
	a := &Answer{}
	for _, w := range k.whereabouts(p, revs) {
		away := w.Position == server.PositionDisconnected
		switch {
		case w.Position == server.PositionACKed:
			a.ACKed++
		case w.Position == server.PositionNotConcerned:
		case away && !k.awaited(&w):
			a.Disconnected++
		default:
			a.Pending = a.Pending || away || w.Position == server.PositionBehind
			a.Lacking = append(a.Lacking, Lacking{Proxy: w.Name + "." + w.Namespace, Position: w.Position, Reason: reason(&w)})
		}
	}
	slices.SortFunc(a.Lacking, func(a, b Lacking) int { return strings.Compare(a.Proxy, b.Proxy) })
	return a
}

func (k *Registry) absence() time.Duration { return cmp.Or(k.Absence, DefaultAbsence) }

// awaited tells whether a disconnected proxy may be back soon.
func (k *Registry) awaited(w *server.ProxySyncStatus) bool {
	return len(w.Reasons) > 0 && time.Since(w.Reasons[0].Since) < k.absence()
}

// whereabouts is where each proxy stands towards revisions, where they differ the worst;
// without those that have left themselves, and without the proxy that asks.
func (k *Registry) whereabouts(p *model.Proxy, revs []model.Revision) map[string]server.ProxySyncStatus {
	out := map[string]server.ProxySyncStatus{}
	for _, rev := range revs {
		for _, w := range k.Proxies.Distribution(&server.Query{Revision: rev}) {
			if w.ID == p.ID || w.Position == server.PositionDisconnected && k.left(w.Namespace, w.Name) {
				continue
			}
			if old, ok := out[w.ID]; !ok || rank[w.Position] > rank[old.Position] {
				out[w.ID] = w
			}
		}
	}
	return out
}

// rank orders positions, the worst last.
var rank = map[server.SyncState]int{
	server.PositionNotConcerned: 0, server.PositionACKed: 1, server.PositionDisconnected: 2, server.PositionRefused: 3, server.PositionBehind: 4,
}

// reason is why a proxy lacks a change, in words.
func reason(w *server.ProxySyncStatus) string {
	var out []string
	for _, r := range w.Reasons {
		text := string(r.Cause)
		if r.Type != "" {
			text += " " + r.Type
		}
		if !r.Since.IsZero() {
			text += fmt.Sprintf(" for %s", time.Since(r.Since).Round(time.Millisecond))
		}
		if r.Text != "" {
			text += ": " + r.Text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
