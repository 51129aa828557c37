package derive

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/endpoint"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Deriver keeps the configuration of all open groups up to date with the store. One goroutine uses it.
type Deriver struct {
	index    *index.Index
	groups   map[GroupKey]*proxyGroup
	workers  int
	sharding Sharding
}

// New makes a deriver without groups. It derives up to workers groups at a time.
func New(mesh *model.Mesh, workers int) *Deriver {
	return &Deriver{index: index.New(mesh), groups: map[GroupKey]*proxyGroup{}, workers: max(1, workers), sharding: AutoSharding}
}

// SetSharding replaces AutoSharding. It must be called before groups are opened.
func (d *Deriver) SetSharding(by Sharding) { d.sharding = by }

// ShardedIn are the forms of the route configurations that an open group has in shards, or had in shards until they went,
// and the listener that asks for shards.
func (d *Deriver) ShardedIn(k GroupKey) ShardedRoutes {
	if g := d.groups[k]; g != nil && g.shards != nil {
		return g.shards.forms()
	}
	return ""
}

// Keeps reports whether an open group has some route configuration in shards only because its proxies used these before.
func (d *Deriver) Keeps(k GroupKey) bool {
	g := d.groups[k]
	return g != nil && g.shards != nil && g.shards.keeps()
}

// Index answers which groups a proxy belongs to. Apply changes it.
func (d *Deriver) Index() *index.Index { return d.index }

// Update is the result of a batch.
type Update struct {
	// Deltas are those of the groups that differ.
	Deltas map[GroupKey]*Delta
	// Rekey reports which proxies may belong to other groups than before; nil: none.
	Rekey func(*model.Proxy) bool
}

// Apply takes a batch of changes into the index and derives what depends on them.
func (d *Deriver) Apply(changes []store.Change) Update {
	t := d.index.Apply(changes)
	var affected []*proxyGroup
	for _, g := range d.groups {
		if t.Mesh || len(t.Sidecars) > 0 {
			d.reset(g, t.Mesh)
		}
		g.touch(t)
		if g.dirty.any() {
			affected = append(affected, g)
		}
	}
	return Update{Deltas: d.derive(affected), Rekey: d.index.Rekey(t)}
}

// derive derives groups in parallel. They share only the index, which does not change meanwhile.
func (d *Deriver) derive(groups []*proxyGroup) map[GroupKey]*Delta {
	memo := endpoint.NewMemo()
	deltas := make([]*Delta, len(groups))
	var wg sync.WaitGroup
	limit := make(chan struct{}, d.workers)
	for i, g := range groups {
		if len(groups) == 1 || d.workers == 1 {
			deltas[i] = g.derive(d.index, memo)
			continue
		}
		limit <- struct{}{}
		wg.Go(func() {
			deltas[i] = g.derive(d.index, memo)
			<-limit
		})
	}
	wg.Wait()
	out := make(map[GroupKey]*Delta, len(groups))
	for i, g := range groups {
		if deltas[i].Len() > 0 {
			out[g.Key] = deltas[i]
		}
	}
	return out
}

// Open makes a group, and returns everything that it has; nil: the group is open already.
func (d *Deriver) Open(k GroupKey) *Delta {
	if d.groups[k] != nil {
		return nil
	}
	g := newProxyGroup(k, d.index.Sidecar(k.Sidecar), d.sharding)
	d.groups[k] = g
	d.index.Opened(&k)
	g.markAll(d.index)
	delta := g.derive(d.index, endpoint.NewMemo())
	if defect.PolicyGap.On() {
		unprotect(delta)
	}
	return delta
}

// unprotect removes all authorization, for defect.PolicyGap.
func unprotect(d *Delta) {
	for _, l := range d.Listeners {
		for i := 0; l != nil && i < len(l.Chains); i++ {
			if h := l.Chains[i].HTTP; h != nil {
				h.Authorization = nil
			}
		}
	}
}

// Close forgets a group.
func (d *Deriver) Close(k GroupKey) {
	if d.groups[k] != nil {
		delete(d.groups, k)
		d.index.Closed(&k)
	}
}

// Groups lists the open groups, by name.
func (d *Deriver) Groups() []GroupKey {
	return slices.SortedFunc(maps.Keys(d.groups), func(a, b GroupKey) int {
		return strings.Compare(a.String(), b.String())
	})
}

// reset puts a new version of a group's Sidecar, or of the mesh's configuration, in force. Everything that was visible or is
// visible now may differ. A group keeps a Sidecar that is gone: its proxies belong to other groups from this batch on.
func (d *Deriver) reset(g *proxyGroup, mesh bool) {
	now := d.index.Sidecar(g.Key.Sidecar)
	if now == nil {
		now = g.Sidecar
	}
	if now == g.Sidecar && !mesh {
		return
	}
	g.SetSidecar(now)
	g.replaceIngressSecrets()
	for h := range g.hosts {
		g.mark(hostUnit(h))
	}
	for h := range g.agent.names {
		g.mark(hostUnit(h))
	}
	g.markListeners()
	g.markAll(d.index)
}
