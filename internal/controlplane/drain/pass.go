package drain

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// A departure is passed on to all other control planes by the one that was asked, and by no
// other. It asks each again and again, until none of its proxies is waited for.

// MethodPass is the gRPC method of control planes among themselves by which a departure is
// passed on. It is unary; its messages are a passed and an Answer in JSON.
const MethodPass = "/moonsail.v1.ControlPlane/Leave"

// passed is a Request as one control plane has granted it.
type passed struct {
	Request
	// RoundMillis bounds the wait for ACKs, and WaitMillis all of it.
	RoundMillis int64 `json:"roundMs"`
}

// Timing of what is passed on.
const (
	// round is how long a peer waits for its proxies until it tells what it knows: what is
	// asked of it takes up one of a bounded number of places.
	round = 500 * time.Millisecond
	// passMargin is what a peer answers earlier than nobody waits for it any more.
	passMargin = 100 * time.Millisecond
)

// PositionUnknown is that of all proxies of a control plane that does not answer.
const PositionUnknown server.SyncState = "unknown"

// Pass is MethodPass. It is for control planes alone: whoever serves it sees to that. What is
// asked here is never passed on.
func (k *Registry) Pass(ctx context.Context, request []byte) ([]byte, error) {
	in := &passed{}
	if err := json.Unmarshal(request, in); err != nil {
		return nil, server.Invalid("%s: %v", MethodPass, err)
	}
	_, p, err := decode(request)
	if err != nil {
		return nil, err
	}
	if in.Stay {
		k.stay(p, "another control plane says so")
		return json.Marshal(&Answer{})
	}
	m, fresh, err := k.admit(p, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, in.wait())
	defer cancel()
	if err := k.begin(ctx, m, fresh); err != nil {
		return nil, err
	}
	waiting, stop := context.WithTimeout(ctx, max(time.Millisecond, time.Duration(in.RoundMillis)*time.Millisecond))
	defer stop()
	a := k.here(waiting, p, m)
	a.LackCount = len(a.Lacking)
	a.Lacking = a.Lacking[:min(maxNamed, len(a.Lacking))]
	return json.Marshal(a)
}

// elsewhere is what all other control planes said.
type elsewhere struct {
	Answer
	// calm: when they were asked, no control plane had been lost lately whose proxies might
	// have come to another one since.
	calm    bool
	refused error // not nil: one of them knows that the workload does not leave
}

// pass asks all others, once it is known who they are, in a goroutine that ends with ctx.
func (k *Registry) pass(ctx context.Context, q *Request, p *model.Proxy) <-chan *elsewhere {
	out := make(chan *elsewhere, 1)
	go func() { out <- k.askOthers(ctx, q, p) }()
	return out
}

func (k *Registry) askOthers(ctx context.Context, q *Request, p *model.Proxy) *elsewhere {
	out := &elsewhere{calm: k.calm()}
	if k.Peers == nil {
		return out
	}
	select {
	case <-k.Peers.Looked():
	case <-ctx.Done():
		out.Pending, out.LackCount = true, 1
		out.Lacking = []Lacking{{
			Proxy: "all proxies of other control planes", Position: PositionUnknown, Reason: "it is not known yet which there are",
		}}
		return out
	}
	answers := peers.Each(ctx, k.Peers.All(), func(ctx context.Context, peer *peers.Peer) *elsewhere {
		return k.askOther(ctx, peer, q, p)
	})
	for _, a := range answers {
		out.add(&a.Answer)
		if a.refused != nil {
			out.refused = a.refused
		}
	}
	return out
}

// askOther asks one, unless it has been silent for too long to be waited for.
func (k *Registry) askOther(ctx context.Context, peer *peers.Peer, q *Request, p *model.Proxy) *elsewhere {
	if _, over, why := peer.Silent(); over && !q.Stay {
		return k.unanswered(peer, why, false)
	}
	in := &passed{Request: Request{Node: q.Node, Instance: q.Instance, Addresses: p.IPs, Stay: q.Stay}, RoundMillis: round.Milliseconds()}
	if end, ok := ctx.Deadline(); ok {
		in.WaitMillis = max(1, (time.Until(end) - passMargin).Milliseconds())
	}
	out := &elsewhere{}
	err := k.callWhileItLives(ctx, peer, in, &out.Answer)
	switch {
	case err == nil:
		out.Peers++
	case status.Code(err) == codes.FailedPrecondition:
		out.refused = server.Refused("%s: %s", peer.Address, status.Convert(err).Message())
	case peer.Gone():
	default:
		return k.unanswered(peer, status.Convert(err).Message(), true)
	}
	return out
}

// callWhileItLives ends a call to a peer that has come to be silent for too long.
func (k *Registry) callWhileItLives(ctx context.Context, peer *peers.Peer, in *passed, answer *Answer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- peer.Call(ctx, MethodPass, in, answer) }()
	tick := time.NewTicker(passMargin)
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

// unanswered names a peer whose proxies nobody knows of.
func (k *Registry) unanswered(peer *peers.Peer, why string, pending bool) *elsewhere {
	out := &elsewhere{}
	out.Pending, out.LackCount = pending, 1
	out.Lacking = []Lacking{{
		Proxy: "all proxies of the control plane " + peer.Address, Position: PositionUnknown,
		Reason: peer.Unanswered(why),
	}}
	return out
}

// add adds what another control plane said, or several.
func (a *Answer) add(b *Answer) {
	a.ACKed += b.ACKed
	a.Disconnected += b.Disconnected
	a.LackCount += b.LackCount
	a.Peers += b.Peers
	a.Pending = a.Pending || b.Pending
	a.Lacking = append(a.Lacking, b.Lacking...)
}

// calm tells whether nobody is on the way from one control plane to another whom nobody knows
// of: after a start of this one, and after another one is lost.
func (k *Registry) calm() bool {
	if time.Since(k.started) < k.absence() {
		return false
	}
	return k.Peers == nil || time.Since(k.Peers.Lost()) >= k.absence()
}
