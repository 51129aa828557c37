package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// look begins to look for the endpoints of clusters that it has not looked for yet. Envoy
// holds its requests for endpoints back until it has begun with all of them.
func (e *envoy) look() {
	if len(e.later) > 0 {
		e.request(eds, Request{Subscribe: slices2(slices.Sorted(maps.Keys(e.later))...)})
	}
	clear(e.later)
}

// wanted are the route configurations that listeners use.
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

// wantsScopes tells whether a listener uses scopes.
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

// followScopes subscribes scopes when a listener uses some. It never tells that none does any more.
func (e *envoy) followScopes() {
	if e.wantsScopes() && !e.asks {
		e.request(srds, Request{})
		e.asks = true
	}
}

// activate lets listeners take connections that have their routes. One that uses scopes
// does not wait for those that it misses, unless it is the first that does, or Envoy starts.
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

// unserved tells of a listener that takes connections and lacks routes of them.
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

// uses tells whether a listener takes connections by a route configuration.
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

// followListeners subscribes route configurations as listeners want them. Of an LDS response that is done
// once, when all of it is taken: Envoy pauses RDS, SRDS and SDS while it takes one (LdsApiImpl::onConfigUpdate), so
// that a route configuration which goes from one listener of it to another is not unsubscribed in between.
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
		// A draining listener keeps it for a while. In state-of-the-world, a name that goes
		// and comes again while a response is in flight is a name that never went.
		scoped := routeshard.RouteConfig(rc) != rc // it goes with its scope
		if !want[rc] && e.sotw == nil && (scoped || e.r.IntN(3) > 0) {
			for v := range e.routes[rc].hosts {
				delete(e.listed, v) // Envoy goes on listing them: see connect
			}
			delete(e.routes, rc)
			e.request(rds, Request{Unsubscribe: slices2(rc)})
		}
	}
}

// startListeners asks for listeners when the clusters are ready, as Envoy starts.
func (e *envoy) startListeners() {
	if e.started[cds] && !e.started[lds] && len(e.warming) == 0 && len(e.clusters) > 0 {
		e.request(lds, Request{})
		e.late = e.late && e.r.IntN(2) == 0
	}
}

// dangling tells who refers to a cluster that is not there, or has no endpoints.
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
	want := e.wanted() // others are of listeners that drain
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
