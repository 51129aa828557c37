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

// MethodHello is the unary gRPC method for liveness checks. Its messages are JSON.
const MethodHello = "/moonsail.v1.ControlPlane/Hello"

// hello is the request and the answer.
type hello struct {
	ID string `json:"id"`
}

// connectParams retry connections soon: a control plane that starts must be known before its first proxies.
var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: helloTimeout,
}

// Hello serves MethodHello.
func (s *Peers) Hello(context.Context, []byte) ([]byte, error) { return json.Marshal(hello{s.id}) }

// failuresUntilReset is the number of consecutive failures after which a connection is replaced. Its other
// end may be gone, or may reject an old certificate.
const failuresUntilReset = 3

// live sends hellos until the peer leaves the list.
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

// greet sends one hello, and returns the number of consecutive failures.
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
	if other { // one control plane ended and the next began between two checks
		p.all.noteLost()
	}
	if fresh && id != p.all.id {
		p.all.opts.Log.Info("another control plane answers", "peer", p.Address)
	}
}

func (p *Peer) noteProblem(err error) {
	p.mu.Lock()
	reported := p.problem != nil || p.refused
	p.problem = err
	p.mu.Unlock()
	if !reported {
		p.all.opts.Log.Warn("another control plane does not answer", "peer", p.Address, "error", err)
	}
}
