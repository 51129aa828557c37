package ledger

import (
	"fmt"
	"maps"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// requireSameAsTables compares what the proxy has with the tables.
func (x *run) requireSameAsTables() {
	e := x.envoy
	heldBack := func(k kind, n string) bool { return x.ledger.watches[k].held[n] != nil }
	compare := func(k kind, what string, want map[string]content, t resource.Type, got map[string]held) {
		for n, c := range want {
			switch {
			case c.bad:
				if !heldBack(k, n) && k != eds {
					x.fail(what + " " + n + " is bad but not held back")
				}
			case got[n].version != c.encode(t, n).Version:
				x.fail(fmt.Sprintf("%s %s is not as it should be: %+v, want %+v", what, n, got[n], c))
			}
		}
		for n := range got {
			if _, ok := want[n]; !ok {
				x.fail(what + " " + n + " should be gone")
			}
		}
	}
	both := func(t resource.Type) map[string]content {
		out := map[string]content{}
		for _, w := range []*world{x.outbound[x.bound], x.inbound} {
			for n, c := range w.has[t] {
				out[n] = c
			}
		}
		return out
	}
	held := 0
	for k := lds; k < kinds; k++ {
		held += len(x.ledger.watches[k].held)
	}
	clusters, endpoints := maps.Clone(e.clusters), maps.Clone(e.endpoints)
	for n, c := range both(resource.Cluster) {
		if c.bad { // the proxy has an older one, which may have had endpoints
			delete(endpoints, n)
		}
	}
	if held > 0 { // clusters may have to stay
		for n := range clusters {
			if _, ok := both(resource.Cluster)[n]; !ok {
				delete(clusters, n)
				delete(endpoints, n)
			}
		}
	}
	compare(cds, "cluster", both(resource.Cluster), resource.Cluster, clusters)
	want := both(resource.Endpoints)
	for n := range want {
		if !e.clusters[n].eds || both(resource.Cluster)[n].bad {
			delete(want, n)
		}
	}
	compare(eds, "endpoints", want, resource.Endpoints, endpoints)
	if !e.started[lds] {
		return
	}
	if e.asks {
		compare(srds, "scope", both(resource.Scope), resource.Scope, e.scopes)
	}
	for n, l := range e.listeners {
		if e.active[n].version != l.version && !x.outbound[0].bad {
			x.fail("listener " + n + " waits forever")
		}
	}
	compare(lds, "listener", both(resource.Listener), resource.Listener, e.listeners)
	x.requireRoutes(both)
	for n := range e.warming {
		if c, ok := both(resource.Cluster)[n]; ok && !c.bad && !both(resource.Endpoints)[n].bad {
			x.fail("cluster " + n + " waits for endpoints forever")
		}
	}
	if rev, _ := x.ledger.Settle(); rev < x.ledger.newest() { // it may be newer: other tables had it
		x.fail(fmt.Sprintf("settled %d of %d", rev, x.ledger.newest()))
	}
}

func (x *run) requireRoutes(both func(resource.Type) map[string]content) {
	routes, hosts := both(resource.RouteConfig), both(resource.VirtualHost)
	for n, rc := range x.envoy.routes {
		if _, ok := routes[n]; !ok {
			continue // a draining listener has it
		}
		if !rc.loaded && !(x.strategy == WholeRoutes && x.ledger.watches[rds].held[n] != nil) {
			bad := true
			for v, c := range hosts {
				bad = bad && (table.RouteConfigOf(v) != n || c.bad)
			}
			if !bad {
				x.fail("route configuration " + n + " waits for virtual hosts forever")
			}
		}
		if x.strategy == WholeRoutes {
			want := x.ledger.lookup(resource.RouteConfig, n).Version
			if rc.version != want && x.ledger.watches[rds].held[n] == nil {
				x.fail("route configuration " + n + " is not as it should be")
			}
			continue
		}
		for v, c := range hosts {
			if table.RouteConfigOf(v) == n && !c.bad && rc.hosts[v].version != c.encode(resource.VirtualHost, v).Version {
				x.fail("virtual host " + v + " is not as it should be")
			}
		}
		for v := range rc.hosts {
			if _, ok := hosts[v]; !ok {
				x.fail("virtual host " + v + " should be gone")
			}
		}
	}
}

// live runs a history, and checks the proxy whenever it is quiet.
func (x *run) live() {
	for i := range 400 {
		x.step()
		x.requireStatuses(false)
		if i%100 == 99 {
			x.calm()
			x.requireSameAsTables()
			x.requireStatuses(true)
			// a route that was refused after reconnecting may be older than everything that is
			// known
			x.unsafe = x.unsafe && x.outbound[0].bad
		}
	}
}
