package engine

import (
	"context"
	"errors"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// bindings connect streams with the proxy groups whose tables they read. Run's goroutine owns them.
type bindings struct {
	deriver *derive.Deriver
	groups  *groups
	bound   map[*model.Proxy]*binding
	waiting map[*binding]chan<- []*table.Table // streams that wait until the sources have loaded
}

// binding is the hold of one stream on its two proxy groups.
type binding struct {
	proxy  *model.Proxy
	rebind func([]*table.Table)
	keys   [2]derive.GroupKey // the groups that it uses: outbound, inbound
	want   [2]derive.GroupKey // the groups of a proxy without kept
	// kept are the route configurations that the proxy had in shards on this stream or an earlier one.
	// Its draining listeners may still ask for them, so all tables that it moves to have these shards.
	kept  derive.ShardedRoutes
	bound bool // counts as a user of its groups
	// refused is why it is not bound. Valid once the reply was sent.
	refused error
}

func newBindings(d *derive.Deriver, g *groups) *bindings {
	return &bindings{deriver: d, groups: g, bound: map[*model.Proxy]*binding{}, waiting: map[*binding]chan<- []*table.Table{}}
}

// keysOf returns the groups of a proxy that has no route configuration in shards.
func (s *bindings) keysOf(p *model.Proxy) [2]derive.GroupKey {
	outbound, inbound := s.deriver.Index().Keys(p)
	return [2]derive.GroupKey{outbound, inbound}
}

// cohort selects between the two cohorts of a group. A group that has shards only because its proxies
// had them is not offered to new proxies: they get the second cohort. If both cohorts are in this state,
// the second one is used as it is, since a third table costs more than shards.
func (s *bindings) cohort(keys [2]derive.GroupKey) [2]derive.GroupKey {
	if s.deriver.Keeps(keys[0]) {
		keys[0].Cohort = 1
	}
	return keys
}

// place selects the groups of a binding: the plain ones if they have all shards in b.kept, else groups
// whose key asks for these shards.
func (s *bindings) place(b *binding, deltas map[derive.GroupKey]*derive.Delta) {
	s.use(b, b.want, deltas)
	if s.deriver.ShardedIn(b.keys[0]).Covers(b.kept) {
		return
	}
	s.groups.release(b.keys)
	withShards := b.want
	withShards[0].Sharded = b.kept.Asking()
	s.use(b, withShards, deltas)
}

func (s *bindings) use(b *binding, keys [2]derive.GroupKey, deltas map[derive.GroupKey]*derive.Delta) {
	b.keys = s.cohort(keys)
	s.groups.use(b.keys, b.proxy, deltas)
}

// move selects new groups for a binding. They have the shards that it has, and more.
func (s *bindings) move(b *binding, more derive.ShardedRoutes, deltas map[derive.GroupKey]*derive.Delta) {
	old := b.keys
	b.kept = b.kept.Union(s.deriver.ShardedIn(old[0])).Union(more)
	s.place(b, deltas)
	s.groups.release(old)
}

// rekey moves the bindings whose proxies belong to other groups now, and returns them. The content of
// new groups goes to deltas. The caller rebinds the streams after the commit.
func (s *bindings) rekey(concerned func(*model.Proxy) bool, deltas map[derive.GroupKey]*derive.Delta) []*binding {
	var moved []*binding
	for _, b := range s.bound {
		if !concerned(b.proxy) {
			continue
		}
		if want := s.keysOf(b.proxy); want != b.want {
			b.want = want
			s.move(b, "", deltas)
			moved = append(moved, b)
		}
	}
	return moved
}

// release ends a binding. Calling it again has no effect.
func (s *bindings) release(b *binding) {
	delete(s.waiting, b)
	if b.bound {
		b.bound = false
		delete(s.bound, b.proxy)
		s.groups.release(b.keys)
	}
}

var errStopped = errors.New("the control plane is stopping: connect again")

// Bind returns the tables of a proxy's groups, outbound first, and a function that releases them. It waits
// until the sources have loaded. rebind receives the new tables if the proxy moves to other groups.
func (e *Engine) Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) ([]*table.Table, func(), error) {
	b := &binding{proxy: p, rebind: rebind}
	reply := make(chan []*table.Table, 1)
	release := func() { _ = e.call(context.Background(), func() { e.bindings.release(b) }) }
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

// AddShards makes the tables of a bound proxy contain some route configurations in shards, because another
// stream of the proxy has them in shards. If the proxy must move for that, AddShards returns when it was rebound.
func (e *Engine) AddShards(ctx context.Context, p *model.Proxy, routeConfigs []string) error {
	done := make(chan error, 1)
	err := e.call(ctx, func() {
		var err error
		if b := e.bindings.bound[p]; b != nil {
			err = e.keep(b, index.ShardedRoutesOf(routeConfigs...))
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

// call passes a function to Run's goroutine. It does not wait until the function has returned.
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
	e.bindings.waiting[b] = reply
}

// bindWaiting binds the streams that waited for the sources.
func (e *Engine) bindWaiting() {
	for b, reply := range e.bindings.waiting {
		e.bind(b, reply)
	}
	clear(e.bindings.waiting)
}

// bind replies with the tables of a binding, or with nil if it is refused.
func (e *Engine) bind(b *binding, reply chan<- []*table.Table) {
	b.want = e.bindings.keysOf(b.proxy)
	missing := e.groups.missing(e.bindings.cohort(b.want))
	if b.refused = e.groups.admits(b.proxy, missing); b.refused != nil {
		reply <- nil
		return
	}
	b.bound = true
	deltas := map[derive.GroupKey]*derive.Delta{}
	e.bindings.place(b, deltas)
	e.commit(e.store.Snapshot().Revision, deltas)
	e.bindings.bound[b.proxy] = b
	reply <- e.groups.tables(b.keys)
}

func (e *Engine) keep(b *binding, routes derive.ShardedRoutes) error {
	if e.deriver.ShardedIn(b.keys[0]).Covers(routes) {
		return nil
	}
	if err := e.groups.admits(b.proxy, 1); err != nil {
		return err
	}
	deltas := map[derive.GroupKey]*derive.Delta{}
	e.bindings.move(b, routes, deltas)
	e.commit(e.store.Snapshot().Revision, deltas)
	b.rebind(e.groups.tables(b.keys))
	return nil
}
