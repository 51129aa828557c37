package drain

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Further gRPC methods of control planes among themselves; unary, with messages in JSON.
const (
	// MethodDepartures gives who leaves, to a control plane that starts: a listed.
	MethodDepartures = "/moonsail.v1.ControlPlane/Departures"
	// MethodReturned asks who of those that leave has come back: a listed, both ways.
	MethodReturned = "/moonsail.v1.ControlPlane/Returned"
)

// listed is a list of workloads that leave.
type listed struct {
	Leaving []Request `json:"leaving"`
	// AgesMillis are how long ago they began to; clocks of machines differ.
	AgesMillis []int64 `json:"agesMs,omitempty"`
}

// Timing, and bounds.
const (
	// learnIn bounds how long proxies wait after a start until it is known who leaves.
	learnIn = 3 * time.Second
	// askReturnedEvery is how often peers are asked who has come back.
	askReturnedEvery = time.Second
	returnedTimeout  = 2 * time.Second
	// maxListed bounds a question.
	maxListed = 1000
)

// Wait waits after a start until it is known who leaves: a proxy that comes here from another
// control plane knows that already, and is not to be told otherwise.
func (k *Registry) Wait(ctx context.Context) error {
	select {
	case <-k.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// learn asks all others who leaves, until it is in the store here, or was waited for long
// enough.
func (k *Registry) learn(ctx context.Context) {
	defer close(k.settled)
	if k.Peers == nil {
		return
	}
	select {
	case <-k.Peers.Looked():
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnIn)
	defer cancel()
	peers.Each(ctx, k.Peers.All(), func(ctx context.Context, p *peers.Peer) struct{} {
		k.learnFrom(ctx, p)
		return struct{}{}
	})
}

func (k *Registry) learnFrom(ctx context.Context, peer *peers.Peer) {
	tick := time.NewTicker(passMargin)
	defer tick.Stop()
	for {
		var answer listed
		if peer.Call(ctx, MethodDepartures, struct{}{}, &answer) == nil {
			k.take(ctx, peer, &answer)
			return
		}
		if _, over, _ := peer.Silent(); over || peer.Gone() {
			return
		}
		select {
		case <-ctx.Done():
			k.Log.Warn("another control plane does not tell who leaves", "peer", peer.Address)
			return
		case <-tick.C:
		}
	}
}

// together is how many marks are brought into the store at the same time.
const together = 64

// take notes who leaves, and waits until that is in the store.
func (k *Registry) take(ctx context.Context, peer *peers.Peer, l *listed) {
	if len(l.Leaving) == 0 || len(l.AgesMillis) != len(l.Leaving) {
		return
	}
	var working sync.WaitGroup
	room := make(chan struct{}, together)
	for i := range l.Leaving {
		room <- struct{}{}
		working.Go(func() {
			defer func() { <-room }()
			k.takeOne(ctx, &l.Leaving[i], time.Duration(l.AgesMillis[i])*time.Millisecond)
		})
	}
	working.Wait()
	k.Log.Info("another control plane has told who leaves", "peer", peer.Address, "workloads", len(l.Leaving))
}

func (k *Registry) takeOne(ctx context.Context, q *Request, age time.Duration) {
	p, err := q.proxy()
	if err != nil {
		return // no control plane says such a thing
	}
	m, fresh, err := k.admit(p, time.Now().Add(-age))
	if err != nil || k.begin(ctx, m, fresh) != nil {
		return // it has come back meanwhile, or there is no time left
	}
	k.mu.Lock()
	m.answered = true
	k.mu.Unlock()
}

// Departures is MethodDepartures.
func (k *Registry) Departures(context.Context, []byte) ([]byte, error) {
	return json.Marshal(k.list())
}

func (k *Registry) list() *listed {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &listed{}
	for _, m := range k.marks {
		out.Leaving = append(out.Leaving, Request{Node: m.departure.Origin, Instance: m.instance, Addresses: m.departure.Addresses})
		out.AgesMillis = append(out.AgesMillis, time.Since(m.since).Milliseconds())
	}
	return out
}

// Returned is MethodReturned.
func (k *Registry) Returned(_ context.Context, request []byte) ([]byte, error) {
	var in, out listed
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, server.Invalid("%s: %v", MethodReturned, err)
	}
	for i := range in.Leaving {
		p, err := in.Leaving[i].proxy()
		if err != nil {
			return nil, err
		}
		if k.returned(p) {
			out.Leaving = append(out.Leaving, in.Leaving[i])
		}
	}
	return json.Marshal(&out)
}

// returned tells whether another one than p is connected in its place.
func (k *Registry) returned(p *model.Proxy) bool {
	if s, ok := k.Proxies.Proxy(p.ID); ok && s.Proxy.Instance != p.Instance {
		return true
	}
	for _, a := range p.IPs {
		if id, ok := k.Proxies.ProxyAt(a); ok && id != p.ID {
			return true
		}
	}
	return false
}

// askReturned withdraws marks of workloads that have come back to another control plane.
func (k *Registry) askReturned(ctx context.Context) {
	all := k.list().Leaving
	if k.Peers == nil || len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, returnedTimeout)
	defer cancel()
	for ; len(all) > 0; all = all[min(maxListed, len(all)):] {
		question := &listed{Leaving: all[:min(maxListed, len(all))]}
		peers.Each(ctx, k.Peers.All(), func(ctx context.Context, peer *peers.Peer) struct{} {
			var back listed
			if peer.Call(ctx, MethodReturned, question, &back) == nil {
				k.takeBack(&back, peer.Address)
			}
			return struct{}{}
		})
	}
}

func (k *Registry) takeBack(l *listed, peer string) {
	for i := range l.Leaving {
		if p, err := l.Leaving[i].proxy(); err == nil {
			k.stay(p, "another one has connected to the control plane "+peer)
		}
	}
}

// stay withdraws the mark of p, where there is one.
func (k *Registry) stay(p *model.Proxy, why string) {
	k.mu.Lock()
	m := k.marks[keyOf(p)]
	k.mu.Unlock()
	if m != nil && m.instance == p.Instance {
		k.withdraw(m, why)
	}
}
