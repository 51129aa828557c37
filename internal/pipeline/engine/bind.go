package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// group is one open scope with its table.
type group struct {
	table     *table.Table
	patches   *envoyfilter.Set // in force; replaced by the translation of the scope alone
	owner     owner
	users     int
	idleSince time.Time // of its last user's leave; counts while there is none
}

// binding is one stream's hold on its scopes.
type binding struct {
	proxy  *model.Proxy
	rebind func([]*table.Table)
	keys   [2]derive.GroupKey // outbound, inbound
	want   [2]derive.GroupKey // keysOf proxy
	// kept are route configurations that the proxy had in buckets when it was moved last, or on a
	// stream before. Its listeners that drain may look for them yet: tables that it is moved to
	// have them in buckets, too.
	kept  derive.ShardedRoutes
	bound bool // counts as user of its scopes
	// refused is why it is not; to be read once there is an answer.
	refused error
}

var errStopped = errors.New("the control plane is stopping; connect again")

// Bind gives a proxy the tables of its scopes, outbound first. It waits until the
// sources have loaded: an empty answer would take everything from a proxy that
// reconnects.
func (e *Engine) Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) ([]*table.Table, func(), error) {
	b := &binding{proxy: p, rebind: rebind}
	reply := make(chan []*table.Table, 1)
	release := func() { _ = e.call(context.Background(), func() { e.release(b) }) }
	err := e.call(ctx, func() { e.bindOrWait(b, reply) })
	if err != nil {
		return nil, nil, err
	}
	select {
	case tables := <-reply:
		if tables == nil {
			return nil, nil, b.refused
		}
		return tables, release, nil
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	case <-e.done:
		return nil, nil, errStopped
	}
}

// call has Run's goroutine run f; it does not wait for the end.
func (e *Engine) call(ctx context.Context, f func()) error {
	select {
	case e.calls <- f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.done:
		return errStopped
	}
}

func (e *Engine) bindOrWait(b *binding, reply chan<- []*table.Table) {
	if e.Synced() {
		e.bind(b, reply)
		return
	}
	e.waiting[b] = reply
}

// admit lets those in who waited for the sources.
func (e *Engine) admit() {
	for b, reply := range e.waiting {
		e.bind(b, reply)
	}
	clear(e.waiting)
}

func (e *Engine) bind(b *binding, reply chan<- []*table.Table) {
	b.want = e.keysOf(b.proxy)
	if b.refused = e.admits(b.proxy, e.missing(b.want)); b.refused != nil {
		reply <- nil
		return
	}
	b.bound = true
	deltas := map[derive.GroupKey]*derive.Delta{}
	e.place(b, deltas)
	e.commit(e.store.Snapshot().Revision, deltas)
	e.bindings[b.proxy] = b
	reply <- e.tables(b)
}

// keysOf are the scopes that a proxy belongs to which has nothing in buckets.
func (e *Engine) keysOf(p *model.Proxy) [2]derive.GroupKey {
	outbound, inbound := e.deriver.Index().Keys(p)
	return [2]derive.GroupKey{outbound, inbound}
}

// place finds a binding its scopes: one that has in buckets what it must, by itself or else as its
// key says, and that keeps nothing in buckets for others' sake, unless both generations do.
func (e *Engine) place(b *binding, deltas map[derive.GroupKey]*derive.Delta) {
	e.hold(b, b.want, deltas)
	if e.deriver.ShardedIn(b.keys[0]).Covers(b.kept) {
		return
	}
	e.letGo(b.keys)
	told := b.want
	told[0].Sharded = b.kept.Asking()
	e.hold(b, told, deltas)
}

// Keep has tables of a proxy's that was bound have some route configurations in buckets, as it has
// them so from another stream. It returns when it was rebound, where that was necessary.
func (e *Engine) Keep(ctx context.Context, p *model.Proxy, routeConfigs []string) error {
	done := make(chan error, 1)
	err := e.call(ctx, func() {
		var err error
		if b := e.bindings[p]; b != nil {
			err = e.keep(b, derive.ShardedRoutesOf(routeConfigs...))
		}
		done <- err
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.done:
		return errStopped
	}
}

func (e *Engine) keep(b *binding, split derive.ShardedRoutes) error {
	if e.deriver.ShardedIn(b.keys[0]).Covers(split) {
		return nil
	}
	if err := e.admits(b.proxy, 1); err != nil {
		return err
	}
	deltas := map[derive.GroupKey]*derive.Delta{}
	e.move(b, split, deltas)
	e.commit(e.store.Snapshot().Revision, deltas)
	b.rebind(e.tables(b))
	return nil
}

// move finds a binding scopes anew, which have in buckets what it has so, and more.
func (e *Engine) move(b *binding, more derive.ShardedRoutes, deltas map[derive.GroupKey]*derive.Delta) {
	old := b.keys
	b.kept = b.kept.Union(e.deriver.ShardedIn(old[0])).Union(more)
	e.place(b, deltas)
	e.letGo(old)
}

// hold counts a binding as user of scopes and opens those that are not; what they hold goes to
// deltas.
func (e *Engine) hold(b *binding, keys [2]derive.GroupKey, deltas map[derive.GroupKey]*derive.Delta) {
	b.keys = e.cohort(keys)
	for _, k := range b.keys {
		s := e.groups[k]
		if s == nil {
			s = &group{table: table.NewFor(k.String(), k.Origins()), owner: ownerOf(b.proxy)}
			if s.owner != (owner{}) {
				e.opened[s.owner]++
			}
			e.groups[k] = s
			deltas[k] = e.deriver.Open(k)
		}
		s.users++
	}
}

// generation are the scopes of those keys that a binding may have now. There are two generations: where both keep buckets,
// a third table would cost more than buckets do.
func (e *Engine) cohort(keys [2]derive.GroupKey) [2]derive.GroupKey {
	if e.deriver.Keeps(keys[0]) {
		keys[0].Cohort = 1
	}
	return keys
}

func (e *Engine) tables(b *binding) []*table.Table {
	return []*table.Table{e.groups[b.keys[0]].table, e.groups[b.keys[1]].table}
}

func (e *Engine) release(b *binding) {
	delete(e.waiting, b)
	if b.bound {
		b.bound = false
		delete(e.bindings, b.proxy)
		e.letGo(b.keys)
	}
}

func (e *Engine) letGo(keys [2]derive.GroupKey) {
	for _, k := range keys {
		s := e.groups[k]
		s.users--
		if s.users == 0 {
			s.idleSince = time.Now()
		}
	}
}

// rekey finds the bindings whose proxies belong to other scopes now, and moves them; the
// new scopes' content goes to deltas. The streams are to be told after the commit.
func (e *Engine) rekey(concerned func(*model.Proxy) bool, deltas map[derive.GroupKey]*derive.Delta) []*binding {
	var moved []*binding
	for _, b := range e.bindings {
		if !concerned(b.proxy) {
			continue
		}
		if want := e.keysOf(b.proxy); want != b.want {
			b.want = want
			e.move(b, "", deltas)
			moved = append(moved, b)
		}
	}
	return moved
}

// closeIdle forgets scopes that have had no user for a while.
func (e *Engine) closeIdle(now time.Time) {
	for k, s := range e.groups {
		if s.users == 0 && now.Sub(s.idleSince) >= e.opts.IdleGroup {
			e.closeGroup(k)
		}
	}
}

// GroupInfo tells of one scope.
type GroupInfo struct {
	Name    string          `json:"name"`
	Key     derive.GroupKey `json:"key"`
	Proxies int             `json:"proxies"`
	// Resources counts the table's entries by type.
	Resources map[string]int `json:"resources"`
	Revision  model.Revision `json:"revision"`
}

// ProxyGroups lists the open scopes by name; none once the engine has stopped.
func (e *Engine) ProxyGroups(ctx context.Context) []GroupInfo { return ask(ctx, e, e.groupInfos) }

// Failures lists what could not be translated, by scope, type and name.
func (e *Engine) Failures(ctx context.Context) []Failure { return ask(ctx, e, e.sortedFailures) }

// Listed gives those of some addresses that are endpoints, or may come to be; none once the
// engine has stopped.
func (e *Engine) Listed(ctx context.Context, addresses []string) []string {
	return ask(ctx, e, func() []string {
		return slices.DeleteFunc(addresses, func(a string) bool { return !e.deriver.Index().Lists(a) })
	})
}

// ask has Run's goroutine answer a question; nil where it has stopped or ctx ends first.
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

func (e *Engine) groupInfos() []GroupInfo {
	var out []GroupInfo
	for _, k := range e.deriver.Groups() {
		s := e.groups[k]
		info := GroupInfo{Name: k.String(), Key: k, Proxies: s.users, Revision: s.table.State().Revision}
		info.Resources = countResources(s.table.State())
		out = append(out, info)
	}
	return out
}
