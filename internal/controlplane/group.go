package controlplane

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// startInOrder starts a goroutine for each function. stop ends them in reverse order: each when the ones after it have
// ended.
func startInOrder(functions ...func(context.Context)) (stop func()) {
	var stops []func()
	for _, f := range functions {
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { f(ctx) })
		stops = append(stops, func() {
			cancel()
			ended.Wait()
		})
	}
	return func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
}

// group runs parts until its context ends. The first that fails ends all.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	parts  sync.WaitGroup
	once   sync.Once // guards err
	err    error     // of the first part that failed
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

func (g *group) run(name string, f func(context.Context) error) {
	g.parts.Go(func() {
		if err := f(g.ctx); err != nil {
			g.once.Do(func() { g.err = fmt.Errorf("%s: %w", name, err) })
			g.cancel()
		}
	})
}

// wait waits for all parts. It returns the error of the one that failed first; nil if the context ended.
func (g *group) wait() error {
	<-g.ctx.Done()
	g.parts.Wait()
	g.cancel()
	return g.err
}
