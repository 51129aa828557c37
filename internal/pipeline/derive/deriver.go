package derive

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Deriver keeps the views of all scopes up to date with the store. One goroutine uses it.
type Deriver struct {
	index    *Index
	groups   map[GroupKey]*proxyGroup
	workers  int
	sharding Sharding
}

// New makes a deriver without scopes that derives up to workers scopes at a time.
func New(mesh *model.Mesh, workers int) *Deriver {
	return &Deriver{index: NewIndex(mesh), groups: map[GroupKey]*proxyGroup{}, workers: max(1, workers), sharding: AutoSharding}
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
func (d *Deriver) Index() *Index { return d.index }

// Update is what a batch has done.
type Update struct {
	// Deltas are those of the scopes that differ.
	Deltas map[GroupKey]*Delta
	// Rekey tells which proxies may belong to other scopes than before; nil: none.
	Rekey func(*model.Proxy) bool
}

// Apply takes a batch of changes into the index and derives what depends on them.
func (d *Deriver) Apply(changes []store.Change) Update {
	t := newTouched()
	changes, t.labels = d.index.auto.resolve(d.index.exports.resolve(d.index.discovery.filter(changes)))
	for _, c := range changes {
		d.index.apply(c, t)
	}
	if d.index.discovery.takeRelabelled() {
		t.facts.add(namespacesFact())
	}
	d.index.endpoints.settle(t)
	var affected []*proxyGroup
	for _, s := range d.groups {
		if t.mesh || len(t.sidecars) > 0 {
			d.reset(s, t.mesh)
		}
		s.touch(t)
		if s.dirty.any() {
			affected = append(affected, s)
		}
	}
	return Update{Deltas: d.derive(affected), Rekey: d.index.rekey(t)}
}

// rekey tells whose scopes may be others now.
func (x *Index) rekey(t *touched) func(*model.Proxy) bool {
	switch {
	case t.labels || t.sidecars[x.mesh.RootNamespace]:
		return func(*model.Proxy) bool { return true }
	case x.localityUsage.localities == 0 && len(t.sidecars)+len(t.addresses) == 0:
		return nil // where Pods are is nothing that anybody asks for
	case len(t.sidecars)+len(t.addresses)+len(t.pods) > 0:
		return func(p *model.Proxy) bool {
			return t.sidecars[p.Namespace] || t.addresses[addressOf(p)] || t.pods[name{p.Namespace, p.Name}]
		}
	}
	return nil
}

// derive derives scopes side by side; they share nothing but the index, which nobody
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
	s := newProxyGroup(k, d.index.sidecar(k.Sidecar), d.sharding)
	d.groups[k] = s
	d.index.markAll(s)
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
	now := d.index.sidecar(s.Key.Sidecar)
	if now == nil {
		now = s.sidecar
	}
	if now == s.sidecar && !mesh {
		return
	}
	s.setEgress(now)
	for h := range s.hosts {
		s.mark(hostUnit(h))
	}
	for h := range s.named {
		s.mark(hostUnit(h))
	}
	s.markListeners()
	d.index.markAll(s)
}

// sidecar is nil for the zero key and for what is gone.
func (x *Index) sidecar(k model.Key) *model.Sidecar { return x.sidecars[k.Namespace][k] }

// markAll makes everything dirty that a scope may see.
func (x *Index) markAll(s *proxyGroup) {
	switch {
	case s.Key.Names && s.Key.Inbound:
		return
	case s.Key.Names:
		x.markServices(s)
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
	x.markServices(s)
	if s.router != nil {
		s.markRouter(x)
		return
	}
	for h, list := range x.routes {
		if slices.ContainsFunc(list, s.importsRoutes) {
			s.mark(hostUnit(h))
		}
	}
}

func (x *Index) markServices(s *proxyGroup) {
	for h, list := range x.services {
		if slices.ContainsFunc(list, s.sees) {
			s.mark(hostUnit(h))
		}
	}
}
