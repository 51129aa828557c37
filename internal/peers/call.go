package peers

import (
	"context"
	"sync"
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
