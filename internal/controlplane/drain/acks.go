package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// ackWaiter waits for the ACKs of the proxies of this control plane, for one request.
type ackWaiter struct {
	*Registry
	workload *model.Proxy // that drains
	notice   *notice
}

// awaitAll waits until no proxy is left to wait for, or ctx ends.
func (w *ackWaiter) awaitAll(ctx context.Context) *response {
	w.notices.markAnswered(w.notice)
	revs := w.revisions()
	for _, rev := range revs {
		if w.Changes.Await(ctx, rev) != nil {
			break // ctx has ended: await lists the proxies that lack it
		}
	}
	return w.await(ctx, revs)
}

// revisions lists those that removed the workload's endpoints: the notice's, and earlier ones of
// the source itself that may still be on their way.
func (w *ackWaiter) revisions() []model.Revision {
	n := w.notice
	out := []model.Revision{n.rev}
	for _, r := range w.Changes.RemovedEndpoints(0) {
		if r.Revision < n.rev && slices.Contains(n.object.Addresses, r.Address) && n.since.Sub(r.Observed) < MaxWait {
			out = append(out, r.Revision)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Intervals of await. Each count takes the lock of every stream, so the list of disconnected proxies is
// looked at instead while they are all that it waits for.
const (
	pollInterval    = 10 * time.Millisecond
	maxPollInterval = 160 * time.Millisecond
)

// await counts the proxies that have the revisions, until none is left to wait for or ctx ends.
func (w *ackWaiter) await(ctx context.Context, revs []model.Revision) *response {
	for next := pollInterval; ; next = min(2*next, maxPollInterval) {
		a, away := w.count(revs)
		if !a.Pending && w.settledPeers() {
			return a
		}
		if len(away.ids) > 0 && w.sleepWhileAway(ctx, away) {
			next = pollInterval
		}
		if clock.Sleep(ctx, next) != nil {
			return a
		}
	}
}

// away are the disconnected proxies that are waited for, if no others are.
type away struct {
	ids   []string
	until time.Time // end of the earliest grace
}

// sleepWhileAway waits until one of the proxies has connected again, or is not waited for any more. It
// reports whether it waited for that.
func (w *ackWaiter) sleepWhileAway(ctx context.Context, a away) (waited bool) {
	for time.Now().Before(a.until) && w.Proxies.Away(a.ids) {
		if waited = true; clock.Sleep(ctx, pollInterval) != nil {
			return true
		}
	}
	return waited
}

// count counts the proxies by what they have of the revisions.
func (w *ackWaiter) count(revs []model.Revision) (*response, away) {
	a, gone, behind := &response{}, away{}, false
	for _, s := range w.syncStatus(revs) {
		disconnected := s.Position == distribution.StateDisconnected
		switch {
		case s.Position == distribution.StateACKed:
			a.ACKed++
		case s.Position == distribution.StateNotConcerned:
		case disconnected && !w.mayReconnect(&s):
			a.Disconnected++
		default:
			if disconnected {
				gone.add(s.ID, s.Reasons[0].Since.Add(w.reconnectGrace()))
			}
			behind = behind || s.Position == distribution.StateBehind
			a.Lacking = append(a.Lacking, agentapi.LackingProxy{Proxy: s.Name + "." + s.Namespace, Position: string(s.Position), Reason: reason(&s)})
		}
	}
	a.Pending = behind || len(gone.ids) > 0
	if behind {
		gone = away{}
	}
	slices.SortFunc(a.Lacking, func(a, b agentapi.LackingProxy) int { return strings.Compare(a.Proxy, b.Proxy) })
	return a, gone
}

func (a *away) add(id string, until time.Time) {
	a.ids = append(a.ids, id)
	if a.until.IsZero() || until.Before(a.until) {
		a.until = until
	}
}

// mayReconnect reports whether a disconnected proxy is waited for.
func (w *ackWaiter) mayReconnect(s *distribution.ProxySyncStatus) bool {
	return len(s.Reasons) > 0 && time.Since(s.Reasons[0].Since) < w.reconnectGrace()
}

// syncStatus returns the state of each proxy by node id: the worst one, if the revisions differ.
// It leaves out the workload and the proxies that have drained themselves.
func (w *ackWaiter) syncStatus(revs []model.Revision) map[string]distribution.ProxySyncStatus {
	out := map[string]distribution.ProxySyncStatus{}
	for _, rev := range revs {
		for _, s := range w.Proxies.Distribution(&distribution.Query{Revision: rev}) {
			if s.ID == w.workload.ID || s.Position == distribution.StateDisconnected && w.notices.draining(s.Namespace, s.Name) {
				continue
			}
			if old, ok := out[s.ID]; !ok || rank[s.Position] > rank[old.Position] {
				out[s.ID] = s
			}
		}
	}
	return out
}

// rank orders states from the best to the worst.
var rank = map[distribution.SyncState]int{
	distribution.StateNotConcerned: 0, distribution.StateACKed: 1, distribution.StateDisconnected: 2, distribution.StateRefused: 3, distribution.StateBehind: 4,
}

// reason explains in words why a proxy lacks a change.
func reason(s *distribution.ProxySyncStatus) string {
	var out []string
	for _, r := range s.Reasons {
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
