package drain

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// The control plane that an agent asks forwards the request to all others, and repeats that until
// none of them has a proxy to wait for. A forwarded request is not forwarded again.

// MethodForward is the unary gRPC method that forwards a request between control planes. Its
// messages are a forwarded and an agentapi.DeregisterResponse in JSON.
const MethodForward = "/moonsail.v1.ControlPlane/Deregister"

// forwarded is a request that another control plane has authorized.
type forwarded struct {
	agentapi.DeregisterRequest
	// RoundMillis bounds the wait for ACKs. WaitMillis bounds the whole call.
	RoundMillis int64 `json:"roundMs"`
}

// Timing.
const (
	// forwardRound is how long a peer waits for its proxies before it answers. Calls to it
	// occupy one of a bounded number of places.
	forwardRound = 500 * time.Millisecond
	// answerMargin is how long before its caller's deadline a peer answers.
	answerMargin = 100 * time.Millisecond
)

// positionUnknown is the position of the proxies of a control plane that does not answer.
const positionUnknown = "unknown"

// Forwarded serves MethodForward. The port that serves it admits control planes only.
func (r *Registry) Forwarded(ctx context.Context, request []byte) ([]byte, error) {
	in := &forwarded{}
	if err := json.Unmarshal(request, in); err != nil {
		return nil, server.Invalid("%s: %v", MethodForward, err)
	}
	_, p, err := decode(request)
	if err != nil {
		return nil, err
	}
	if in.Stay {
		r.notices.cancel(p, "its sidecar has withdrawn it, at another control plane")
		return json.Marshal(&response{})
	}
	n, fresh, err := r.admit(p, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitOf(&in.DeregisterRequest))
	defer cancel()
	if err := r.begin(ctx, n, fresh); err != nil {
		return nil, err
	}
	waiting, stop := context.WithTimeout(ctx, max(time.Millisecond, time.Duration(in.RoundMillis)*time.Millisecond))
	defer stop()
	a := (&ackWaiter{r, p, n}).awaitAll(waiting)
	a.LackCount = len(a.Lacking)
	a.Lacking = a.Lacking[:min(maxListedProxies, len(a.Lacking))]
	return json.Marshal(a)
}

// response is an agentapi.DeregisterResponse that is being joined.
type response struct{ agentapi.DeregisterResponse }

// add adds the answer of another control plane, or of several.
func (a *response) add(b *response) {
	a.ACKed += b.ACKed
	a.Disconnected += b.Disconnected
	a.LackCount += b.LackCount
	a.Peers += b.Peers
	a.Pending = a.Pending || b.Pending
	a.Lacking = append(a.Lacking, b.Lacking...)
}

// peersAnswer joins the answers of all other control planes.
type peersAnswer struct {
	response
	// settled reports that no proxy was on its way from a lost control plane to another one when
	// the peers were asked.
	settled bool
	refused error // not nil: a peer has another instance of the workload connected
}

// forward asks all peers, once they are known, in a goroutine that ends with ctx.
func (r *Registry) forward(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy) <-chan *peersAnswer {
	out := make(chan *peersAnswer, 1)
	go func() { out <- r.callPeers(ctx, q, p) }()
	return out
}

func (r *Registry) callPeers(ctx context.Context, q *agentapi.DeregisterRequest, p *model.Proxy) *peersAnswer {
	out := &peersAnswer{settled: r.settledPeers()}
	if r.Peers == nil {
		return out
	}
	select {
	case <-r.Peers.Looked():
	case <-ctx.Done():
		out.Pending, out.LackCount = true, 1
		out.Lacking = []agentapi.LackingProxy{{
			Proxy: "all proxies of other control planes", Position: positionUnknown, Reason: "the other control planes are not known yet",
		}}
		return out
	}
	answers := peers.Each(ctx, r.Peers.All(), func(ctx context.Context, peer *peers.Peer) *peersAnswer {
		return r.callPeer(ctx, peer, q, p)
	})
	for _, a := range answers {
		out.add(&a.response)
		if a.refused != nil {
			out.refused = a.refused
		}
	}
	return out
}

// callPeer asks one peer, unless it has been silent for too long to wait for it.
func (r *Registry) callPeer(ctx context.Context, peer *peers.Peer, q *agentapi.DeregisterRequest, p *model.Proxy) *peersAnswer {
	if _, over, why := peer.Silent(); over && !q.Stay {
		return r.unknownProxies(peer, why, false)
	}
	in := &forwarded{
		DeregisterRequest: agentapi.DeregisterRequest{Node: q.Node, Instance: q.Instance, Addresses: p.IPs, ServiceAccount: p.ServiceAccount, Stay: q.Stay},
		RoundMillis:       forwardRound.Milliseconds(),
	}
	if end, ok := ctx.Deadline(); ok {
		in.WaitMillis = max(1, (time.Until(end) - answerMargin).Milliseconds())
	}
	out := &peersAnswer{}
	err := r.callWhileAlive(ctx, peer, in, &out.response)
	switch {
	case err == nil:
		out.Peers++
	case status.Code(err) == codes.FailedPrecondition:
		out.refused = server.Refused("%s: %s", peer.Address, status.Convert(err).Message())
	case peer.Gone():
	default:
		return r.unknownProxies(peer, status.Convert(err).Message(), true)
	}
	return out
}

// callWhileAlive calls a peer, and ends the call if the peer is silent for too long.
func (r *Registry) callWhileAlive(ctx context.Context, peer *peers.Peer, in *forwarded, answer *response) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- peer.Call(ctx, MethodForward, in, answer) }()
	tick := time.NewTicker(answerMargin)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			if _, over, _ := peer.Silent(); over {
				cancel()
				return <-ended
			}
		}
	}
}

// unknownProxies stands for the proxies of a peer that does not answer.
func (r *Registry) unknownProxies(peer *peers.Peer, why string, pending bool) *peersAnswer {
	out := &peersAnswer{}
	out.Pending, out.LackCount = pending, 1
	out.Lacking = []agentapi.LackingProxy{{
		Proxy: "all proxies of the control plane " + peer.Address, Position: positionUnknown,
		Reason: peer.Unanswered(why),
	}}
	return out
}

// settledPeers reports that every proxy had the time to connect again: after a start of this
// control plane, and after the loss of another one.
func (r *Registry) settledPeers() bool {
	if time.Since(r.started) < r.reconnectGrace() {
		return false
	}
	return r.Peers == nil || time.Since(r.Peers.Lost()) >= r.reconnectGrace()
}
