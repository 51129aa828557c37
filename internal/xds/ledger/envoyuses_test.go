package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// look requests the endpoints of new clusters. Envoy delays these requests until it has initialized
// all clusters.
func (e *envoy) look() {
	if len(e.later) > 0 {
		e.request(eds, Request{Subscribe: slices2(slices.Sorted(maps.Keys(e.later))...)})
	}
	clear(e.later)
}

// wanted returns the route configurations that listeners use.
func (e *envoy) wanted() map[string]bool {
	want := map[string]bool{}
	for _, list := range []map[string]held{e.listeners, e.active} {
		for _, l := range list {
			for _, ref := range l.refs {
				if rc, ok := strings.CutPrefix(ref, "rc:"); ok {
					want[rc] = true
				}
			}
		}
	}
	for n := range e.scopes {
		want[n] = true
	}
	return want
}

// wantsScopes reports whether a listener uses scopes.
func (e *envoy) wantsScopes() bool {
	for _, list := range []map[string]held{e.listeners, e.active} {
		for _, l := range list {
			if slices.ContainsFunc(l.refs, usesScopes) {
				return true
			}
		}
	}
	return false
}

func usesScopes(ref string) bool { return strings.HasPrefix(ref, "sc:") || ref == "ask:" }

// followScopes subscribes to scopes when a listener uses some. It never unsubscribes.
func (e *envoy) followScopes() {
	if e.wantsScopes() && !e.asks {
		e.request(srds, Request{})
		e.asks = true
	}
}

// activate makes listeners accept connections that have their routes. A listener that uses scopes
// does not wait for missing ones, unless it is the first that uses scopes, or Envoy starts.
func (e *envoy) activate() {
	for n, l := range e.listeners {
		ready := true
		for _, ref := range l.refs {
			if rc, ok := strings.CutPrefix(ref, "rc:"); ok {
				ready = ready && e.routes[rc] != nil && e.routes[rc].loaded
			}
			if usesScopes(ref) && e.waits[n] {
				ready = ready && e.scoped && e.scopesLoaded()
			}
		}
		if ready {
			e.active[n] = l
			delete(e.waits, n)
		}
	}
	e.starting = e.starting && (len(e.listeners) == 0 || len(e.active) < len(e.listeners))
	e.followListeners()
}

func (e *envoy) scopesLoaded() bool {
	for n := range e.scopes {
		if rc := e.routes[n]; rc == nil || !rc.loaded {
			return false
		}
	}
	return true
}

// unserved returns an error if a listener accepts connections and lacks routes.
func (e *envoy) unserved() error {
	for n, l := range e.active {
		for _, ref := range l.refs {
			var need []string
			if rc, ok := strings.CutPrefix(ref, "rc:"); ok {
				need = append(need, rc)
			}
			if sc, ok := strings.CutPrefix(ref, "sc:"); ok {
				need = partsOf(sc)
				for _, part := range need {
					if _, ok := e.scopes[part]; !ok {
						return fmt.Errorf("listener %s has no scope %s", n, part)
					}
				}
			}
			for _, rc := range need {
				if have := e.routes[rc]; have == nil || !have.loaded {
					return fmt.Errorf("listener %s lacks routes %s", n, rc)
				}
			}
		}
	}
	return nil
}

// uses reports whether a listener accepts connections with a route configuration.
func (e *envoy) uses(rc string) bool {
	for _, l := range e.active {
		for _, ref := range l.refs {
			sc, scoped := strings.CutPrefix(ref, "sc:")
			if ref == "rc:"+rc || scoped && slices.Contains(partsOf(sc), rc) {
				return true
			}
		}
	}
	return false
}

// followListeners subscribes to the route configurations that listeners use. It does so once for
// each LDS response, after all of it: Envoy pauses RDS, SRDS and SDS meanwhile
// (LdsApiImpl::onConfigUpdate). A route configuration that moves between two listeners of a
// response is therefore not unsubscribed in between.
func (e *envoy) followListeners() {
	e.followScopes()
	want := e.wanted()
	for _, rc := range slices.Sorted(maps.Keys(want)) {
		if e.routes[rc] == nil {
			e.routes[rc] = &routeConfig{hosts: map[string]held{}}
			e.request(rds, Request{Subscribe: slices2(rc)})
		}
	}
	for _, rc := range slices.Sorted(maps.Keys(e.routes)) {
		e.routes[rc].stale = e.routes[rc].stale || !want[rc]
		// A draining listener keeps it for a while. On state-of-the-world streams, a name that is
		// removed and added while a response is in flight was never removed.
		scoped := routeshard.RouteConfig(rc) != rc // it ends with its scope
		if !want[rc] && e.sotw == nil && (scoped || e.r.IntN(3) > 0) {
			for v := range e.routes[rc].hosts {
				delete(e.listed, v) // Envoy continues to list them: see connect
			}
			delete(e.routes, rc)
			e.request(rds, Request{Unsubscribe: slices2(rc)})
		}
	}
}

// startListeners requests listeners when the clusters are ready, as a starting Envoy does.
func (e *envoy) startListeners() {
	if e.started[cds] && !e.started[lds] && len(e.warming) == 0 && len(e.clusters) > 0 {
		e.request(lds, Request{})
		e.late = e.late && e.r.IntN(2) == 0
	}
}

// dangling returns an error if a resource refers to a cluster that does not exist, or has no
// endpoints.
func (e *envoy) dangling() error {
	check := func(who string, refs []string) error {
		for _, ref := range refs {
			if strings.HasPrefix(ref, "rc:") || usesScopes(ref) || e.refused[cds][ref] || e.refused[eds][ref] {
				continue
			}
			c, ok := e.clusters[ref]
			if !ok {
				return fmt.Errorf("%s refers to %s, which is not there", who, ref)
			}
			if _, ok := e.endpoints[ref]; !e.usable[ref] || c.eds && !ok && !e.warming[ref] {
				return fmt.Errorf("%s refers to %s, which has no endpoints", who, ref)
			}
		}
		return nil
	}
	for n, l := range e.listeners {
		if err := check("listener "+n, l.refs); err != nil {
			return err
		}
	}
	want := e.wanted() // others are used by draining listeners
	for n, rc := range e.routes {
		for v, host := range rc.hosts {
			if !want[n] || rc.stale {
				continue
			}
			if err := check("route "+n+" host "+v, host.refs); err != nil {
				return err
			}
		}
	}
	return nil
}
