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
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Deregister serves agentapi.DeregisterMethod for callers that are believed.
func (k *Registry) Deregister(ctx context.Context, request []byte) ([]byte, error) {
	return k.DeregisterIf(func(context.Context, *model.Proxy) error { return nil })(ctx, request)
}

// DeregisterIf serves agentapi.DeregisterMethod for callers that may allows. The proxy that may
// gets has all addresses of the workload. Its errors are gRPC statuses.
func (k *Registry) DeregisterIf(may func(context.Context, *model.Proxy) error) server.Unary {
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

func (k *Registry) answer(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy) ([]byte, error) {
	if q.Stay {
		return k.withdrawFromAll(ctx, q, p)
	}
	n, fresh, err := k.admit(p, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitOf(q))
	defer cancel()
	a, err := k.deregister(ctx, q, p, n, fresh)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// admit adds the notice of p, unless another instance of p is connected.
func (k *Registry) admit(p *model.Proxy, since time.Time) (n *notice, fresh bool, err error) {
	if s, ok := k.Proxies.Proxy(p.ID); ok && s.Proxy.Instance != p.Instance {
		return nil, false, server.Refused("another instance of %s is connected: an instance can deregister itself only", p)
	}
	return k.add(p, since)
}

// withdrawFromAll ends the notice of p here and on all peers that answer.
func (k *Registry) withdrawFromAll(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, waitOf(q))
	defer cancel()
	k.cancel(p, "its sidecar has withdrawn it")
	a := &(<-k.forward(ctx, q, p)).response
	a.Pending = false
	return json.Marshal(a)
}

// deregister waits until every proxy, here and on all peers, has ACKed the notice.
func (k *Registry) deregister(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy, n *notice, fresh bool) (*response, error) {
	start := time.Now()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	peers := k.forward(asking, q, p) // first, so that the peers wait at the same time
	if err := k.begin(ctx, n, fresh); err != nil {
		cancel()
		<-peers
		return nil, err
	}
	a, err := k.awaitAll(ctx, q, p, n, peers)
	if err != nil {
		return nil, err
	}
	a.Revision = uint64(n.rev)
	a.Lacking = a.Lacking[:min(maxListedProxies, len(a.Lacking))]
	a.TookMillis = float64(time.Since(start).Microseconds()) / 1000
	level := slog.LevelDebug // the agent repeats its request
	if fresh {
		level = slog.LevelInfo
	}
	k.Log.Log(ctx, level, "workload drains", "workload", p.String(), "rev", n.rev, "acked", a.ACKed, "lacking", a.LackCount,
		"disconnected", a.Disconnected, "peers", a.Peers, "took", time.Since(start).Round(10*time.Microsecond))
	return a, nil
}

// awaitAll joins the answers for the proxies of all control planes. It returns when there is no
// proxy left to wait for, or when ctx ends.
func (k *Registry) awaitAll(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy, n *notice, others <-chan *peersAnswer) (*response, error) {
	for {
		a, o := k.awaitLocal(ctx, p, n), <-others
		if o.refused != nil {
			k.withdraw(n, "another instance has connected to another control plane")
			return nil, o.refused
		}
		a.LackCount = len(a.Lacking)
		a.add(&o.response)
		// Control planes that do not answer go first: each stands for many proxies.
		slices.SortStableFunc(a.Lacking, func(a, b agentapi.LackingProxy) int { return cmp.Compare(unknownFirst(&a), unknownFirst(&b)) })
		if ctx.Err() != nil || !a.Pending && o.settled {
			return a, nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done(): // the next round returns
		}
		others = k.forward(ctx, q, p)
	}
}

func unknownFirst(l *agentapi.LackingProxy) int {
	if l.Position == positionUnknown {
		return 0
	}
	return 1
}

// awaitLocal waits for the proxies of this control plane, until ctx ends.
func (k *Registry) awaitLocal(ctx context.Context, p *model.Proxy, n *notice) *response {
	k.mu.Lock()
	n.answered = true
	k.mu.Unlock()
	revs := k.revisions(n)
	for _, rev := range revs {
		if k.Changes.Await(ctx, rev) != nil {
			break // ctx has ended: await lists the proxies that lack it
		}
	}
	return k.await(ctx, p, revs)
}

// begin waits until the notice has a revision.
func (k *Registry) begin(ctx context.Context, n *notice, fresh bool) error {
	if fresh {
		f := k.Changes.Follow(n.object.Key)
		defer f.Stop()
		k.put(n)
		select {
		case n.rev = <-f.Began():
			close(n.began)
		case <-n.withdrawn:
		case <-ctx.Done():
			k.withdraw(n, "the pipeline did not take it in time")
		}
	}
	select {
	case <-n.began:
		return nil
	case <-n.withdrawn:
		return server.Unavailable("the drain notice of %s was withdrawn before it took effect", n.object.Name)
	case <-ctx.Done():
		return server.Unavailable("the control plane is overloaded: it did not take the drain notice of %s in time", n.object.Name)
	}
}

// put puts a notice into the intake, unless it was withdrawn meanwhile.
func (k *Registry) put(n *notice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.notices[n.object.Key] == n {
		k.Intake.Put(store.Event{Key: n.object.Key, Object: n.object, Observed: n.since, Urgent: true})
	}
}

// revisions lists those that removed the workload's endpoints: the notice's, and earlier ones of
// the source itself that may still be on their way.
func (k *Registry) revisions(n *notice) []model.Revision {
	out := []model.Revision{n.rev}
	for _, r := range k.Changes.RemovedEndpoints(0) {
		if r.Revision < n.rev && slices.Contains(n.object.Addresses, r.Address) && n.since.Sub(r.Observed) < MaxWait {
			out = append(out, r.Revision)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pollInterval is how often await looks for disconnected proxies that are back.
const pollInterval = 10 * time.Millisecond

// await counts the proxies that have the revisions, until none is left to wait for or ctx ends.
func (k *Registry) await(ctx context.Context, p *model.Proxy, revs []model.Revision) *response {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		a := k.count(p, revs)
		if !a.Pending && k.settledPeers() {
			return a
		}
		select {
		case <-ctx.Done():
			return a
		case <-tick.C:
		}
	}
}

func (k *Registry) count(p *model.Proxy, revs []model.Revision) *response {
	a := &response{}
	for _, s := range k.syncStatus(p, revs) {
		disconnected := s.Position == distribution.StateDisconnected
		switch {
		case s.Position == distribution.StateACKed:
			a.ACKed++
		case s.Position == distribution.StateNotConcerned:
		case disconnected && !k.mayReconnect(&s):
			a.Disconnected++
		default:
			a.Pending = a.Pending || disconnected || s.Position == distribution.StateBehind
			a.Lacking = append(a.Lacking, agentapi.LackingProxy{Proxy: s.Name + "." + s.Namespace, Position: string(s.Position), Reason: reason(&s)})
		}
	}
	slices.SortFunc(a.Lacking, func(a, b agentapi.LackingProxy) int { return strings.Compare(a.Proxy, b.Proxy) })
	return a
}

func (k *Registry) reconnectGrace() time.Duration {
	return cmp.Or(k.ReconnectGrace, DefaultReconnectGrace)
}

// mayReconnect reports whether a disconnected proxy is waited for.
func (k *Registry) mayReconnect(s *distribution.ProxySyncStatus) bool {
	return len(s.Reasons) > 0 && time.Since(s.Reasons[0].Since) < k.reconnectGrace()
}

// syncStatus returns the state of each proxy by node id: the worst one, if the revisions differ.
// It leaves out p and the proxies that have drained themselves.
func (k *Registry) syncStatus(p *model.Proxy, revs []model.Revision) map[string]distribution.ProxySyncStatus {
	out := map[string]distribution.ProxySyncStatus{}
	for _, rev := range revs {
		for _, s := range k.Proxies.Distribution(&distribution.Query{Revision: rev}) {
			if s.ID == p.ID || s.Position == distribution.StateDisconnected && k.draining(s.Namespace, s.Name) {
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
