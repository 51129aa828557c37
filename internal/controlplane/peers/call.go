package peers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// Each asks peers, all at once, and gives what came of it in their order. ask must end with
// its context.
func Each[T any](ctx context.Context, list []*Peer, ask func(context.Context, *Peer) T) []T {
	out := make([]T, len(list))
	var asking sync.WaitGroup
	for i, p := range list {
		asking.Go(func() { out[i] = ask(ctx, p) })
	}
	asking.Wait()
	return out
}

// Answer is what a peer said.
type Answer[T any] struct {
	Address string
	Said    *T     // nil: nothing
	Why     string // it has said nothing
}

// Ask asks all that live, or may, the same, and names those that do not answer. One that has
// been silent for too long is not asked; one that is gone has no answer. It ends with ctx, which
// must end.
func Ask[T any](ctx context.Context, all *Peers, method string, question any) []Answer[T] {
	answers := Each(ctx, all.All(), func(ctx context.Context, p *Peer) *Answer[T] {
		out := &Answer[T]{Address: p.Address}
		if _, over, why := p.Silent(); over {
			out.Why = p.Unanswered(why)
			return out
		}
		said := new(T)
		err := p.Call(ctx, method, question, said)
		switch {
		case err == nil:
			out.Said = said
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

// Unanswered says why a peer has not answered, and for how long it has been silent, where it is.
func (p *Peer) Unanswered(why string) string {
	if silent, _, _ := p.Silent(); silent > 0 {
		return fmt.Sprintf("it has not answered for %s: %s", silent.Round(time.Millisecond), why)
	}
	return why
}

// Count counts those that live or may, of these those that answer, and those that have been
// silent for too long to be waited for.
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
