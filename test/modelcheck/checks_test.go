package modelcheck

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	xds "github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// types are the columns of a table for each type of Envoy. Route configurations have two.
var types = [kinds][]xds.Type{
	cds: {xds.Cluster}, eds: {xds.Endpoints}, sds: {xds.Secret}, srds: {xds.Scope}, lds: {xds.Listener}, rds: {xds.RouteConfig, xds.VHDSRouteConfig}, vhds: {xds.VirtualHost},
}

// inTable returns a resource of a state of a table; nil: it has none.
func inTable(s *table.State, k kind, name string) []*resource {
	var out []*resource
	for _, t := range types[k] {
		if e := s.Get(t, name); e != nil {
			out = append(out, parse(k, e.Resource().Value()))
		}
	}
	return out
}

// checkMessage checks what must hold at any time, after an Envoy has processed a message.
func (x *run) checkMessage(c *client, r *response) error {
	if r.kind == lds {
		if err := x.checkPolicies(c, r); err != nil {
			return err
		}
	}
	if c.unsafe {
		return nil
	}
	return x.checkOrder(c)
}

// reference is a reference to a cluster from a resource with some content.
type reference struct {
	kind    kind
	name    string
	hash    uint64
	cluster string
}

// checkOrder checks make before break: a resource that refers to a cluster is there only with the cluster, unless some
// state of the tables had it like that.
func (x *run) checkOrder(c *client) error {
	history, excused := x.plane.history(c.id), map[reference]bool{}
	err := c.envoy.dangling(func(k kind, name string, r *resource, cluster string) bool {
		ref := reference{k, name, r.hash, cluster}
		excused[ref] = c.excused[ref] || slices.ContainsFunc(history, func(states []*table.State) bool {
			return slices.ContainsFunc(states, func(s *table.State) bool { return ref.danglesIn(s) })
		})
		return excused[ref]
	})
	c.excused = excused
	return err
}

// danglesIn reports whether a state has the resource, and not the cluster or its endpoints. (Endpoints that cannot be translated
// are missing.)
func (r *reference) danglesIn(s *table.State) bool {
	if !slices.ContainsFunc(inTable(s, r.kind, r.name), func(o *resource) bool { return o.hash == r.hash }) {
		return false
	}
	c := inTable(s, cds, r.cluster)
	return len(c) == 0 || c[0].endpoints != "" && s.Get(xds.Endpoints, c[0].endpoints) == nil
}

// checkPolicies checks that a policy which a listener enforced stays until it is deleted.
func (x *run) checkPolicies(c *client, r *response) error {
	for _, n := range r.removed {
		delete(c.guarded, n)
	}
	for _, one := range r.resources {
		now := c.envoy.has[lds][one.name]
		if now == nil {
			continue
		}
		for _, p := range c.guarded[one.name] {
			if !slices.Contains(now.denies, p) && !now.closed {
				return fmt.Errorf("listener %s no longer enforces policy %s, which exists", one.name, p)
			}
		}
		for _, p := range now.denies {
			if x.truth.deny[p] && !slices.Contains(c.guarded[one.name], p) {
				c.guarded[one.name] = append(c.guarded[one.name], p)
			}
		}
	}
	return nil
}

// checkClaims checks what the ledger claims: an Envoy of which everything is settled has what the tables have.
func (x *run) checkClaims() error {
	for _, st := range x.plane.server.Proxies() {
		i := slices.IndexFunc(x.clients, func(c *client) bool { return c.id == st.ID })
		c := x.clients[i]
		if c.on == nil || st.Pending > 0 {
			continue
		}
		var states []*table.State
		newest := uint64(0)
		for _, list := range x.plane.history(c.id) {
			s := list[len(list)-1]
			if slices.Contains(st.Tables, s.Table().Name()) && s.Table().State() == s {
				states = append(states, s)
				newest = max(newest, uint64(s.Revision))
			}
		}
		if uint64(st.Settled) < newest || len(states) != len(st.Tables) || !c.envoy.started[lds] {
			continue
		}
		if err := c.hasAll(states); err != nil {
			return fmt.Errorf("%s: revision %d is settled, but %w", c.id, st.Settled, err)
		}
	}
	return nil
}

// hasAll returns what an Envoy lacks of the tables, of what it subscribes to and does not refuse. Content that it refused is
// not sent again, also if it accepted other content in between.
func (c *client) hasAll(states []*table.State) error {
	for _, s := range states {
		for k, list := range types {
			k := kind(k)
			if k == srds || k == sds || k == vhds || k == rds || !c.envoy.started[k] {
				continue
			}
			for e := range s.All(list[0]) {
				has, want := c.envoy.has[k][e.Name], parse(k, e.Resource().Value())
				if kindTable[k].named && !c.envoy.names[k][e.Name] || c.envoy.refused[k][e.Name] != nil || c.envoy.bad(k, want) {
					continue
				}
				if has == nil {
					return fmt.Errorf("it lacks %s %s", k, e.Name)
				}
				if has.hash != want.hash {
					return fmt.Errorf("it has an old %s %s", k, e.Name)
				}
			}
		}
	}
	return nil
}

// behind returns what a control plane has not finished, and for which Envoy; empty: nothing.
func (p *plane) behind() (envoy, what string) {
	if n := p.intake.Depth(); n > 0 {
		return "", fmt.Sprintf("%d objects wait in the intake", n)
	}
	for _, st := range p.server.Proxies() {
		if st.Pending > 0 {
			return st.ID, fmt.Sprintf("%s has not settled revision %d: %+v", st.ID, st.OldestPending, st.Types)
		}
	}
	for _, st := range p.server.Proxies() {
		for _, list := range p.history(st.ID) {
			if s := list[len(list)-1]; slices.Contains(st.Tables, s.Table().Name()) && s.Table().State() == s && s.Revision > st.Settled {
				return st.ID, fmt.Sprintf("%s has settled %d, and its tables are at %d: %+v", st.ID, st.Settled, s.Revision, st.Types)
			}
		}
	}
	for c := range p.changes.Changes() {
		if c.State != changelog.Distributed {
			return "", fmt.Sprintf("revision %d is still %s: %+v", c.Revision, c.State, c.Proxies)
		}
	}
	return "", ""
}

// kept are resources that cannot be translated. Their last valid version stays, if there was one, a cluster with its endpoints.
func (p *plane) kept() map[string]bool {
	out := map[string]bool{}
	for _, f := range p.engine.Failures() {
		out[f.Type+" "+f.Name] = true
		if f.Type == cds.String() {
			out[eds.String()+" "+f.Name] = true
		}
	}
	return out
}

// checkQuiet checks what must hold when nothing is under way.
func (x *run) checkQuiet() error {
	if _, b := x.plane.behind(); b != "" {
		return fmt.Errorf("all is quiet, and %s", b)
	}
	connected := 0
	for _, c := range x.clients {
		if c.on == nil {
			continue
		}
		connected++
		if err := x.truth.check(c.envoy, x.plane.kept()); err != nil {
			return fmt.Errorf("%s: %w", c.id, err)
		}
	}
	if n := len(x.plane.server.Proxies()); n != connected {
		return fmt.Errorf("the server has %d streams of %d connected Envoys", n, connected)
	}
	users := 0
	for _, g := range x.plane.engine.ProxyGroups(context.Background()) {
		users += g.Proxies
	}
	if users != 2*connected {
		return fmt.Errorf("proxy groups have %d users, and %d Envoys are connected", users, connected)
	}
	return nil
}

// checkFresh checks that each Envoy has what a new one gets from a control plane that begins with the objects that
// exist. With shards the content depends on the past: there a copy of the Envoy moves to that control plane and may not
// change.
func (x *run) checkFresh() error {
	scratch := startPlane(x.truth.objects, x.sharding())
	defer scratch.stop()
	main := x.plane
	x.plane = scratch
	defer func() { x.plane = main }()
	var list []*client
	defer func() {
		for _, c := range list {
			x.disconnect(c)
		}
	}()
	for _, c := range x.clients {
		fresh := &client{id: c.id, node: c.node, guarded: map[string][]string{}}
		if x.plan.sharding {
			fresh.envoy, fresh.excused = c.envoy.clone(), c.excused
		} else {
			fresh.envoy = newEnvoy(c.envoy.picky)
			fresh.envoy.sotw = c.envoy.sotw
		}
		list = append(list, fresh)
		if err := x.connect(fresh); err != nil {
			return err
		}
	}
	if err := x.settle(scratch, list); err != nil {
		return fmt.Errorf("a fresh Envoy: %w", err)
	}
	kept := main.kept()
	maps.Copy(kept, scratch.kept())
	for i, c := range x.clients {
		x.counts.comparisons++
		if err := compare(c.envoy, list[i].envoy, kept); err != nil {
			return fmt.Errorf("%s differs from a fresh Envoy: %w", c.id, err)
		}
	}
	return nil
}

// compare returns the first difference between what two Envoys have. What one of them refuses does not count, nor do
// clusters that a refused resource keeps, nor what is in kept.
func compare(got, want *envoy, kept map[string]bool) error {
	for k := range kinds {
		refuses := got.refuses() || want.refuses()
		for n, r := range want.has[k] {
			if got.refused[k][n] != nil || want.refused[k][n] != nil || k == eds && refuses || kept[k.String()+" "+n] {
				continue
			}
			switch have := got.has[k][n]; {
			case have == nil:
				return fmt.Errorf("%s %s is missing", k, n)
			case have.hash != r.hash:
				return fmt.Errorf("%s %s is in an old form", k, n)
			}
		}
		if k == sds && got.sotw {
			continue // state of the world cannot remove a Secret, and Envoy keeps it
		}
		for n := range got.has[k] {
			if want.has[k][n] == nil && !refuses && !kept[k.String()+" "+n] {
				return fmt.Errorf("%s %s should be gone", k, n)
			}
		}
	}
	return nil
}
