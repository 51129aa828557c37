package peers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// Each calls ask for all peers at once, and returns the results in their order. ask must end with its
// context.
func Each[T any](ctx context.Context, list []*Peer, ask func(context.Context, *Peer) T) []T {
	out := make([]T, len(list))
	var asking sync.WaitGroup
	for i, p := range list {
		asking.Go(func() { out[i] = ask(ctx, p) })
	}
	asking.Wait()
	return out
}

// Answer is the answer of a peer.
type Answer[T any] struct {
	Address string
	Reply   *T     // nil: none
	Why     string // the peer did not answer
}

// Ask asks all peers that are alive, or may be, and names those that do not answer. It does not ask a peer
// that has been silent for too long. A peer that is gone has no answer. It ends with ctx, which must end.
func Ask[T any](ctx context.Context, all *Peers, method string, question any) []Answer[T] {
	answers := Each(ctx, all.All(), func(ctx context.Context, p *Peer) *Answer[T] {
		out := &Answer[T]{Address: p.Address}
		if _, over, why := p.Silent(); over {
			out.Why = p.Unanswered(why)
			return out
		}
		reply := new(T)
		err := p.Call(ctx, method, question, reply)
		switch {
		case err == nil:
			out.Reply = reply
		case p.Gone():
			return nil
		default:
			out.Why = p.Unanswered(status.Convert(err).Message())
		}
		return out
	})
	var out []Answer[T]
	for _, a := range answers {
		if a != nil {
			out = append(out, *a)
		}
	}
	return out
}

// Unanswered describes why a peer did not answer, and for how long it has been silent.
func (p *Peer) Unanswered(why string) string {
	if silent, _, _ := p.Silent(); silent > 0 {
		return fmt.Sprintf("no answer for %s: %s", silent.Round(time.Millisecond), why)
	}
	return why
}

// Count counts the peers that are alive or may be, those of them that answer, and those that have been
// silent for too long.
func (s *Peers) Count() (known, answering, silent int) {
	for _, p := range s.All() {
		known++
		_, over, why := p.Silent()
		switch {
		case why == "":
			answering++
		case over:
			silent++
		}
	}
	return known, answering, silent
}
