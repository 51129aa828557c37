package engine

import (
	"context"
	"slices"

	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
)

// This file answers questions about the engine's state. All methods may be called from any goroutine.
// Those with a ctx return nothing once the engine has stopped or ctx has ended.

// ProxyGroups lists the open proxy groups by name.
func (e *Engine) ProxyGroups(ctx context.Context) []GroupInfo { return ask(ctx, e, e.groups.infos) }

// Failures lists what cannot be translated, by proxy group, type and name, as of the last batch, also while the engine
// works. Callers must not change the list.
func (e *Engine) Failures() []Failure { return e.failures.sorted() }

// PatchMatches lists the patches of EnvoyFilters that apply to proxies, by object and index, and whether they find something
// to change.
func (e *Engine) PatchMatches(ctx context.Context) []PatchMatch {
	return ask(ctx, e, e.groups.patchMatches)
}

// TotalFailures counts failures since the start.
func (e *Engine) TotalFailures() uint64 { return e.failures.total.Load() }

// Listed returns those of some addresses that are endpoints, or may become endpoints.
func (e *Engine) Listed(ctx context.Context, addresses []string) []string {
	return ask(ctx, e, func() []string {
		return slices.DeleteFunc(addresses, func(a string) bool { return !e.deriver.Index().Lists(a) })
	})
}

// ask runs f on Run's goroutine and returns its result.
func ask[T any](ctx context.Context, e *Engine, f func() []T) []T {
	reply := make(chan []T, 1)
	if e.call(ctx, func() { reply <- f() }) != nil {
		return nil
	}
	select {
	case list := <-reply:
		return list
	case <-ctx.Done():
	case <-e.done:
	}
	return nil
}

// Lacking lists the hosts of ServiceEntries for which no address is left, as of the last batch. Callers
// must not change the list.
func (e *Engine) Lacking() []index.Lack {
	if list := e.lacking.Load(); list != nil {
		return *list
	}
	return nil
}

// noteLacking updates the list. It logs when a range of addresses is used up, and when all hosts have
// addresses again.
func (e *Engine) noteLacking() {
	before, now := e.Lacking(), e.deriver.Index().Lacking()
	if slices.Equal(before, now) {
		return
	}
	e.lacking.Store(&now)
	switch {
	case len(now) == 0:
		e.log.Info("all hosts of ServiceEntries have addresses again")
	case len(before) == 0:
		e.log.Warn("a range of addresses for ServiceEntries is used up", "object", now[0].Entry.String(), "problem", now[0].String(), "hosts", len(now))
	}
}
