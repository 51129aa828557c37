package peers

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// MethodHello is the gRPC method by which peers see that they live. It is unary; its messages
// are JSON.
const MethodHello = "/moonsail.v1.ControlPlane/Hello"

// hello is its request and its answer.
type hello struct {
	ID string `json:"id"`
}

// connectParams have connections tried again soon: a control plane that starts is to be known
// before its first proxies are.
var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: helloTimeout,
}

// Hello is MethodHello.
func (s *Peers) Hello(context.Context, []byte) ([]byte, error) { return json.Marshal(hello{s.id}) }

// failuresUntilReset is the number of failures in a row after which a connection is made anew: what is at the other end of it may
// be gone, or may have come to think little of our certificate.
const failuresUntilReset = 3

// live says hello until its place on the list is gone.
func (p *Peer) live() {
	defer p.reset()
	tick := time.NewTicker(p.all.opts.Every)
	defer tick.Stop()
	for failures := 0; ; {
		failures = p.greet(failures)
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// greet says hello once, and gives the failures in a row.
func (p *Peer) greet(failures int) int {
	ctx, cancel := context.WithTimeout(p.ctx, helloTimeout)
	defer cancel()
	var answer hello
	err := p.Call(ctx, MethodHello, &hello{p.all.id}, &answer)
	switch {
	case p.ctx.Err() != nil:
		return failures
	case err == nil:
		p.noteHeard(answer.ID)
		return 0
	}
	p.noteProblem(err)
	if failures++; failures%failuresUntilReset == 0 || status.Code(err) == codes.Unauthenticated {
		p.reset()
	}
	return failures
}

func (p *Peer) noteHeard(id string) {
	p.mu.Lock()
	fresh, other := !p.lived || p.refused || p.problem != nil, p.id != "" && p.id != id
	p.id, p.heard, p.lived, p.refused, p.problem = id, time.Now(), true, false, nil
	p.mu.Unlock()
	if other { // one was gone, and the next came, between two looks
		p.all.noteLost()
	}
	if fresh && id != p.all.id {
		p.all.opts.Log.Info("another control plane answers", "peer", p.Address)
	}
}

func (p *Peer) noteProblem(err error) {
	p.mu.Lock()
	told := p.problem != nil || p.refused
	p.problem = err
	p.mu.Unlock()
	if !told {
		p.all.opts.Log.Warn("another control plane does not answer", "peer", p.Address, "error", err)
	}
}
