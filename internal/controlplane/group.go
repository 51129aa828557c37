package controlplane

import (
	"context"
	"fmt"
	"sync"
)

// background runs f until its result is called, which waits for the end of f.
func background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { f(ctx) })
	return func() {
		cancel()
		ended.Wait()
	}
}

// group runs stages until its context ends. The first that fails ends all.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	stages sync.WaitGroup
	once   sync.Once // guards err
	err    error     // of the first stage that failed
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

func (g *group) run(name string, f func(context.Context) error) {
	g.stages.Go(func() {
		if err := f(g.ctx); err != nil {
			g.once.Do(func() { g.err = fmt.Errorf("%s: %w", name, err) })
			g.cancel()
		}
	})
}

// wait returns the error of the stage that failed first; nil if the context ended.
func (g *group) wait() error {
	<-g.ctx.Done()
	g.stages.Wait()
	g.cancel()
	return g.err
}
