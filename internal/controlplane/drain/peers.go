package drain

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Further unary gRPC methods between control planes. Their messages are noticeLists in JSON.
const (
	// MethodDrainNotices returns all drain notices, to a control plane that starts.
	MethodDrainNotices = "/moonsail.v1.ControlPlane/DrainNotices"
	// MethodReturned returns those of the given notices whose workload is connected in another
	// instance.
	MethodReturned = "/moonsail.v1.ControlPlane/Returned"
)

// noticeList lists drain notices as the requests that made them.
type noticeList struct {
	Requests []agentapi.DeregisterRequest `json:"requests"`
	// AgesMillis holds the age of each notice. Ages, unlike times, do not depend on the clocks
	// of two machines.
	AgesMillis []int64 `json:"agesMs,omitempty"`
}

// Timing, and bounds.
const (
	// learnTimeout bounds how long proxies wait after a start until the peers' notices are known.
	learnTimeout = 3 * time.Second
	// returnedInterval is how often peers are asked which drained workloads have connected again.
	returnedInterval = time.Second
	returnedTimeout  = 2 * time.Second
	// maxRequests bounds the notices of one MethodReturned call.
	maxRequests = 1000
	// maxConcurrentAdds bounds how many notices of a peer enter the pipeline at the same time.
	maxConcurrentAdds = 64
)

// Wait waits after a start until the peers' notices are in the store. A proxy that comes from
// another control plane has them already, and must not be sent the endpoints again.
func (r *Registry) Wait(ctx context.Context) error {
	select {
	case <-r.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// learn takes over the notices of all peers, within learnTimeout.
func (r *Registry) learn(ctx context.Context) {
	defer close(r.settled)
	if r.Peers == nil {
		return
	}
	select {
	case <-r.Peers.Looked():
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	peers.Each(ctx, r.Peers.All(), func(ctx context.Context, p *peers.Peer) struct{} {
		r.learnFrom(ctx, p)
		return struct{}{}
	})
}

func (r *Registry) learnFrom(ctx context.Context, peer *peers.Peer) {
	tick := time.NewTicker(answerMargin)
	defer tick.Stop()
	for {
		var answer noticeList
		if peer.Call(ctx, MethodDrainNotices, struct{}{}, &answer) == nil {
			r.addAll(ctx, peer, &answer)
			return
		}
		if _, over, _ := peer.Silent(); over || peer.Gone() {
			return
		}
		select {
		case <-ctx.Done():
			r.Log.Warn("another control plane does not answer with its drain notices", "peer", peer.Address)
			return
		case <-tick.C:
		}
	}
}

// addAll adds the notices of a peer, and waits until they are in the store.
func (r *Registry) addAll(ctx context.Context, peer *peers.Peer, l *noticeList) {
	if len(l.Requests) == 0 || len(l.AgesMillis) != len(l.Requests) {
		return
	}
	var working sync.WaitGroup
	room := make(chan struct{}, maxConcurrentAdds)
	for i := range l.Requests {
		room <- struct{}{}
		working.Go(func() {
			defer func() { <-room }()
			r.addOne(ctx, &l.Requests[i], time.Duration(l.AgesMillis[i])*time.Millisecond)
		})
	}
	working.Wait()
	r.Log.Info("took over drain notices of another control plane", "peer", peer.Address, "workloads", len(l.Requests))
}

func (r *Registry) addOne(ctx context.Context, q *agentapi.DeregisterRequest, age time.Duration) {
	p, err := proxyOf(q)
	if err != nil {
		return // control planes send no such request
	}
	n, fresh, err := r.admit(p, time.Now().Add(-age))
	if err != nil || r.begin(ctx, n, fresh) != nil {
		return // the workload is back, or the time is over
	}
	r.notices.markAnswered(n)
}

// DrainNotices serves MethodDrainNotices.
func (r *Registry) DrainNotices(context.Context, []byte) ([]byte, error) {
	return json.Marshal(r.notices.list())
}

// Returned serves MethodReturned.
func (r *Registry) Returned(_ context.Context, request []byte) ([]byte, error) {
	var in, out noticeList
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, server.Invalid("%s: %v", MethodReturned, err)
	}
	for i := range in.Requests {
		p, err := proxyOf(&in.Requests[i])
		if err != nil {
			return nil, err
		}
		if r.returned(p) {
			out.Requests = append(out.Requests, in.Requests[i])
		}
	}
	return json.Marshal(&out)
}

// returned reports whether another instance is connected in place of p.
func (r *Registry) returned(p *model.Proxy) bool {
	replaced := func(id string) bool {
		s, ok := r.Proxies.Proxy(id)
		return ok && s.Proxy.ID+s.Proxy.Instance != p.ID+p.Instance && replaces(s.Proxy, p.Namespace, p.ServiceAccount, p.IPs)
	}
	if replaced(p.ID) {
		return true
	}
	return slices.ContainsFunc(p.IPs, func(a string) bool {
		id, ok := r.Proxies.ProxyAt(a)
		return ok && replaced(id)
	})
}

// findReturned withdraws the notices of workloads that have connected to another control plane.
func (r *Registry) findReturned(ctx context.Context) {
	all := r.notices.list().Requests
	if r.Peers == nil || len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, returnedTimeout)
	defer cancel()
	for ; len(all) > 0; all = all[min(maxRequests, len(all)):] {
		query := &noticeList{Requests: all[:min(maxRequests, len(all))]}
		peers.Each(ctx, r.Peers.All(), func(ctx context.Context, peer *peers.Peer) struct{} {
			var back noticeList
			if peer.Call(ctx, MethodReturned, query, &back) == nil {
				r.withdrawReturned(&back, peer.Address)
			}
			return struct{}{}
		})
	}
}

func (r *Registry) withdrawReturned(l *noticeList, peer string) {
	for i := range l.Requests {
		if p, err := proxyOf(&l.Requests[i]); err == nil {
			r.notices.cancel(p, "another instance has connected to the control plane "+peer)
		}
	}
}
