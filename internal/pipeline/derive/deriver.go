package derive

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Deriver keeps the views of all scopes up to date with the store. One goroutine uses it.
type Deriver struct {
	index    *index.Index
	groups   map[GroupKey]*proxyGroup
	workers  int
	sharding Sharding
}

// New makes a deriver without scopes that derives up to workers scopes at a time.
func New(mesh *model.Mesh, workers int) *Deriver {
	return &Deriver{index: index.New(mesh), groups: map[GroupKey]*proxyGroup{}, workers: max(1, workers), sharding: AutoSharding}
}

// SetSharding replaces AutoSharding; before scopes are opened.
func (d *Deriver) SetSharding(by Sharding) { d.sharding = by }

// ShardedIn are the route configurations that an open scope has in buckets, or had so until they went, and
// the listener that asks for them.
func (d *Deriver) ShardedIn(k GroupKey) ShardedRoutes {
	if s := d.groups[k]; s != nil && s.split != nil {
		return s.split.names()
	}
	return ""
}

// Keeps tells whether an open scope has route configurations in buckets only because its proxies
// have looked for them before.
func (d *Deriver) Keeps(k GroupKey) bool {
	s := d.groups[k]
	return s != nil && s.split != nil && s.split.keeps()
}

// Index is what Keys are asked of. Apply changes it.
func (d *Deriver) Index() *index.Index { return d.index }

// Update is what a batch has done.
type Update struct {
	// Deltas are those of the scopes that differ.
	Deltas map[GroupKey]*Delta
	// Rekey tells which proxies may belong to other scopes than before; nil: none.
	Rekey func(*model.Proxy) bool
}

// Apply takes a batch of changes into the index and derives what depends on them.
func (d *Deriver) Apply(changes []store.Change) Update {
	t := d.index.Apply(changes)
	var affected []*proxyGroup
	for _, s := range d.groups {
		if t.Mesh || len(t.Sidecars) > 0 {
			d.reset(s, t.Mesh)
		}
		s.touch(t)
		if s.dirty.any() {
			affected = append(affected, s)
		}
	}
	return Update{Deltas: d.derive(affected), Rekey: d.index.Rekey(t)}
}

// derive derives scopes side by side; they share nothing but the index, which noIdentities
// changes meanwhile.
func (d *Deriver) derive(scopes []*proxyGroup) map[GroupKey]*Delta {
	memo := newEndpointMemo()
	deltas := make([]*Delta, len(scopes))
	var wg sync.WaitGroup
	limit := make(chan struct{}, d.workers)
	for i, s := range scopes {
		if len(scopes) == 1 || d.workers == 1 {
			deltas[i] = s.derive(d.index, memo)
			continue
		}
		limit <- struct{}{}
		wg.Go(func() {
			deltas[i] = s.derive(d.index, memo)
			<-limit
		})
	}
	wg.Wait()
	out := make(map[GroupKey]*Delta, len(scopes))
	for i, s := range scopes {
		if deltas[i].Len() > 0 {
			out[s.Key] = deltas[i]
		}
	}
	return out
}

// Open makes a scope, and gives all that it has; nil where it is open already.
func (d *Deriver) Open(k GroupKey) *Delta {
	if d.groups[k] != nil {
		return nil
	}
	s := newProxyGroup(k, d.index.Sidecar(k.Sidecar), d.sharding)
	d.groups[k] = s
	s.markAll(d.index)
	return s.derive(d.index, newEndpointMemo())
}

// Close forgets a scope.
func (d *Deriver) Close(k GroupKey) { delete(d.groups, k) }

// Groups lists the open scopes, by name.
func (d *Deriver) Groups() []GroupKey {
	return slices.SortedFunc(maps.Keys(d.groups), func(a, b GroupKey) int {
		return strings.Compare(a.String(), b.String())
	})
}

// reset puts a scope's Sidecar in force where it has changed, or the mesh's configuration:
// all that was visible or is now may differ. A scope whose Sidecar has gone stays under it:
// its proxies belong to other scopes from this batch on.
func (d *Deriver) reset(s *proxyGroup, mesh bool) {
	now := d.index.Sidecar(s.Key.Sidecar)
	if now == nil {
		now = s.Sidecar
	}
	if now == s.Sidecar && !mesh {
		return
	}
	s.SetSidecar(now)
	s.askForIngress()
	for h := range s.hosts {
		s.mark(hostUnit(h))
	}
	for h := range s.named {
		s.mark(hostUnit(h))
	}
	s.markListeners()
	s.markAll(d.index)
}

// markAll makes everything dirty that a group may see.
func (s *proxyGroup) markAll(x *index.Index) {
	host := func(h model.Host) { s.mark(hostUnit(h)) }
	switch {
	case s.Key.Names && s.Key.Inbound:
		return
	case s.Key.Names:
		x.SeenServices(s.Client, host)
		return
	case s.Key.Extensions:
		s.mark(unit{kind: unitWasm})
		s.mark(unit{kind: unitPatches})
		return
	}
	s.mark(unit{kind: unitTelemetry})
	s.mark(unit{kind: unitWasm})
	s.mark(unit{kind: unitPatches})
	if s.Key.Inbound {
		s.mark(unit{kind: unitInbound})
		return
	}
	s.mark(unit{kind: unitFixed})
	if s.router != nil {
		x.SeenServices(s.Client, host)
		s.markRouter(x)
		return
	}
	x.VisibleHosts(s.Client, host)
}
