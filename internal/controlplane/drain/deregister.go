package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Deregister serves agentapi.DeregisterMethod for callers that are believed.
func (r *Registry) Deregister(ctx context.Context, request []byte) ([]byte, error) {
	return r.DeregisterIf(func(context.Context, *model.Proxy) error { return nil })(ctx, request)
}

// DeregisterIf serves agentapi.DeregisterMethod for callers that may allows. The proxy that may
// gets has all addresses of the workload. Its errors are gRPC statuses.
func (r *Registry) DeregisterIf(may func(context.Context, *model.Proxy) error) server.Unary {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		q, p, err := decode(request)
		if err == nil {
			err = may(ctx, p)
		}
		if err != nil {
			return nil, err
		}
		return r.answer(ctx, q, p)
	}
}

func (r *Registry) answer(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy) ([]byte, error) {
	if q.Stay {
		return r.withdrawFromAll(ctx, q, p)
	}
	n, fresh, err := r.admit(p, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitOf(q))
	defer cancel()
	a, err := r.deregister(ctx, q, p, n, fresh)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// admit adds the notice of p, unless another instance of p is connected.
func (r *Registry) admit(p *model.Proxy, since time.Time) (n *notice, fresh bool, err error) {
	if s, ok := r.Proxies.Proxy(p.ID); ok && s.Proxy.Instance != p.Instance {
		return nil, false, server.Refused("another instance of %s is connected: an instance can deregister itself only", p)
	}
	return r.notices.add(p, since)
}

// withdrawFromAll ends the notice of p here and on all peers that answer.
func (r *Registry) withdrawFromAll(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, waitOf(q))
	defer cancel()
	r.notices.cancel(p, "its sidecar has withdrawn it")
	a := &(<-r.forward(ctx, q, p)).response
	a.Pending = false
	return json.Marshal(a)
}

// deregister waits until every proxy, here and on all peers, has ACKed the notice.
func (r *Registry) deregister(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy, n *notice, fresh bool) (*response, error) {
	start := time.Now()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	peers := r.forward(asking, q, p) // first, so that the peers wait at the same time
	if err := r.begin(ctx, n, fresh); err != nil {
		cancel()
		<-peers
		return nil, err
	}
	a, err := r.awaitAll(ctx, q, p, n, peers)
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
	r.Log.Log(ctx, level, "workload drains", "workload", p.String(), "rev", n.rev, "acked", a.ACKed, "lacking", a.LackCount,
		"disconnected", a.Disconnected, "peers", a.Peers, "took", time.Since(start).Round(10*time.Microsecond))
	return a, nil
}

// awaitAll joins the answers for the proxies of all control planes. It returns when there is no
// proxy left to wait for, or when ctx ends.
func (r *Registry) awaitAll(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy, n *notice, others <-chan *peersAnswer) (*response, error) {
	for {
		a, o := (&ackWaiter{r, p, n}).awaitAll(ctx), <-others
		if o.refused != nil {
			r.notices.withdraw(n, "another instance has connected to another control plane")
			return nil, o.refused
		}
		a.LackCount = len(a.Lacking)
		a.add(&o.response)
		// Control planes that do not answer go first: each stands for many proxies.
		slices.SortStableFunc(a.Lacking, func(a, b agentapi.LackingProxy) int { return cmp.Compare(unknownFirst(&a), unknownFirst(&b)) })
		if ctx.Err() != nil || !a.Pending && o.settled {
			return a, nil
		}
		_ = clock.Sleep(ctx, pollInterval) // the round after an error returns
		others = r.forward(ctx, q, p)
	}
}

func unknownFirst(l *agentapi.LackingProxy) int {
	if l.Position == positionUnknown {
		return 0
	}
	return 1
}

// begin waits until the notice has a revision.
func (r *Registry) begin(ctx context.Context, n *notice, fresh bool) error {
	if fresh {
		f := r.Changes.Follow(n.object.Key)
		defer f.Stop()
		r.notices.put(n)
		select {
		case n.rev = <-f.Began():
			close(n.began)
		case <-n.withdrawn:
		case <-ctx.Done():
			r.notices.withdraw(n, "the pipeline did not take it in time")
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
