package ledger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/xds/table"
)

// apply applies a response. Resources may be refused one by one.
func (e *envoy) apply(k kind, entries []*table.Entry, removed []string) *Error {
	var bad []string
	for _, en := range entries {
		if c, hosts := decode(en.Resource().Value()); c.bad || slices.ContainsFunc(hosts, func(h content) bool { return h.bad }) {
			bad = append(bad, en.Name)
		}
	}
	partial := k == cds || k == lds || k == srds
	if len(bad) > 0 && !partial {
		if k == eds { // the accepted ones are sent again with it
			for _, en := range entries {
				e.refused[eds][en.Name] = true
			}
		}
		if e.r.IntN(2) == 0 {
			return &Error{Message: "something is wrong with some resource"}
		}
		return &Error{Message: fmt.Sprintf("invalid: %s: bad", bad[e.r.IntN(len(bad))])}
	}
	for _, en := range entries {
		c, hosts := decode(en.Resource().Value())
		if slices.Contains(bad, en.Name) {
			if k == cds {
				e.refused[cds][en.Name] = true
			}
			continue
		}
		e.add(k, en.Name, held{en.Version, c}, hosts)
	}
	for _, n := range removed {
		e.remove(k, n)
	}
	if k == srds {
		e.scoped = e.asks
	}
	e.activate()
	if len(bad) > 0 {
		return &Error{Message: "Error adding/updating: " + strings.Join(bad, ": bad, ") + ": bad"}
	}
	return nil
}

func (e *envoy) add(k kind, name string, h held, hosts []content) {
	switch k {
	case cds:
		old, ok := e.clusters[name]
		e.clusters[name] = h
		if ok && old.version == h.version {
			return // Envoy compares contents
		}
		if h.eds {
			e.warming[name] = true
			switch {
			case ok && old.eds:
			case e.late:
				e.later[name] = true
			default:
				e.request(eds, Request{Subscribe: slices2(name)})
			}
		} else {
			e.usable[name] = true
			delete(e.refused[cds], name)
			if ok && old.eds {
				e.dropEndpoints(name)
			}
		}
	case eds:
		if c, ok := e.clusters[name]; ok && c.eds && !e.later[name] {
			e.endpoints[name] = h
			delete(e.refused[eds], name)
			delete(e.warming, name)
			delete(e.refused[cds], name)
			e.usable[name] = true
		}
	case srds:
		if e.asks {
			e.scopes[name] = h
			e.followListeners()
		}
	case lds: // the listener that requests scopes waits for them, and so do all listeners of a starting Envoy
		e.listeners[name] = h
		e.waits[name] = !e.scoped && (e.starting || !e.asks)
		e.followScopes()
	case rds:
		rc := e.routes[name]
		if rc == nil {
			return // unsubscribed meanwhile
		}
		rc.held = h
		rc.stale = rc.stale && e.vhds
		if !e.vhds {
			rc.hosts, rc.loaded = map[string]held{}, true
			for i, host := range hosts {
				rc.hosts[fmt.Sprint(i)] = held{"", host}
			}
		} else if !e.started[vhds] {
			e.request(vhds, Request{})
		}
	case vhds:
		if rc := e.routes[table.RouteConfigOf(name)]; rc != nil && rc.version != "" {
			e.listed[name] = h.version
			rc.hosts[name], rc.loaded, rc.stale = h, true, false
		}
	}
}

func (e *envoy) remove(k kind, name string) {
	switch k {
	case cds:
		if e.clusters[name].eds {
			e.dropEndpoints(name)
		}
		delete(e.clusters, name)
		delete(e.later, name)
		delete(e.refused[cds], name)
		delete(e.usable, name)
	case eds:
		delete(e.endpoints, name)
		delete(e.warming, name)
	case srds:
		delete(e.scopes, name)
		e.followListeners()
	case lds:
		delete(e.listeners, name)
		delete(e.active, name)
		delete(e.waits, name)
	case rds: // Envoy ignores it
	case vhds:
		delete(e.listed, name)
		if rc := e.routes[table.RouteConfigOf(name)]; rc != nil {
			delete(rc.hosts, name)
			rc.loaded = true
		}
	}
}

func (e *envoy) dropEndpoints(name string) {
	delete(e.endpoints, name)
	delete(e.warming, name)
	delete(e.later, name)
	e.request(eds, Request{Unsubscribe: slices2(name)})
}
