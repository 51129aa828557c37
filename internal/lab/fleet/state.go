package fleet

import (
	"maps"
	"slices"
)

// state is what a proxy has and waits for. It is pure: it returns requests and sends nothing. The proxy's lock guards
// it.
type state struct {
	held     [Kinds][]held // by the name's id
	asked    [Kinds]bool   // on this stream
	waiting  [Kinds]int    // names without an answer
	hosts    map[int]bool  // route configurations without virtual hosts
	scopes   bool          // the first answer to the subscription of scopes is missing
	probing  bool          // it has reconnected and waits for the probe's answer
	ready    bool          // it has all that it subscribed to
	reported bool          // and the fleet knows it
	bare     bool          // it subscribes to the probe only
}

func (s *state) get(k Kind, id int) held {
	if id < len(s.held[k]) {
		return s.held[k][id]
	}
	return none
}

// set changes a resource and counts the missing ones.
func (s *state) set(k Kind, id int, h held) {
	if old := s.get(k, id); old == wanted {
		s.waiting[k]--
	}
	if h == wanted {
		s.waiting[k]++
	}
	if id >= len(s.held[k]) {
		s.held[k] = append(s.held[k], make([]held, id+1-len(s.held[k]))...)
	}
	s.held[k][id] = h
}

// apply processes the resources of a response and appends the requests that follow.
func (s *state) apply(c *Catalog, k Kind, list []resolved, out []request) []request {
	switch k {
	case CDS:
		out = s.applyClusters(c, list, out)
	case EDS:
		s.applyNamed(EDS, list)
	case LDS:
		s.applyAll(LDS, list)
		out = s.followListeners(c, out)
	case SRDS:
		s.applyAll(SRDS, list)
		s.scopes = false
		out = s.followListeners(c, out)
	case RDS:
		out = s.applyRoutes(list, out)
	case VHDS:
		s.applyHosts(list)
	}
	if !s.asked[LDS] && s.asked[CDS] && s.waiting[EDS] == 0 {
		s.asked[LDS] = true
		out = append(out, newRequest(LDS))
	}
	if k == LDS {
		s.asked[RDS] = true // from now on, needed route configurations are requested
	}
	s.ready = !s.probing && !s.scopes && s.asked[RDS] && s.waiting[EDS]+s.waiting[RDS]+len(s.hosts) == 0
	return out
}

func (s *state) applyAll(k Kind, list []resolved) {
	for _, r := range list {
		s.set(k, r.name.id, r.held)
	}
}

// applyNamed processes resources of a kind that is subscribed to by name. It ignores others, as Envoy does.
func (s *state) applyNamed(k Kind, list []resolved) {
	for _, r := range list {
		if r.name.text == Probe {
			s.probing = false
			continue
		}
		if s.get(k, r.name.id) == none {
			continue
		}
		if r.version == nil {
			s.set(k, r.name.id, absent)
		} else {
			s.set(k, r.name.id, r.held)
		}
	}
}

// applyClusters subscribes to endpoints of new clusters, and unsubscribes from those of removed ones.
func (s *state) applyClusters(c *Catalog, list []resolved, out []request) []request {
	var add, remove []*name
	for _, r := range list {
		var had, has *name
		if old := s.get(CDS, r.name.id); old.has() {
			had = c.versionOf(r.name, old).ends
		}
		if r.version != nil {
			has = r.version.ends
		}
		s.set(CDS, r.name.id, r.held)
		if had == has {
			continue
		}
		if had != nil {
			remove = append(remove, had)
		}
		if has != nil {
			add = append(add, has)
		}
	}
	return s.resubscribe(EDS, add, remove, out)
}

// resubscribe subscribes to names, and unsubscribes from others.
func (s *state) resubscribe(k Kind, add, remove []*name, out []request) []request {
	if len(add)+len(remove) == 0 {
		return out
	}
	r := newRequest(k)
	for _, n := range add {
		s.set(k, n.id, wanted)
		r = r.text(fieldSubscribe, n.text)
	}
	for _, n := range remove {
		s.set(k, n.id, none)
		r = r.text(fieldUnsubscribe, n.text)
	}
	s.asked[k] = true
	return append(out, r)
}

// followListeners subscribes to scopes once a listener uses some, and to the route configurations of listeners and
// scopes: once the scopes are there, all in one request.
func (s *state) followListeners(c *Catalog, out []request) []request {
	var add, remove []string
	c.mu.RLock()
	want, scoped := s.routesOf(c, LDS)
	if scoped && !s.asked[SRDS] {
		s.asked[SRDS], s.scopes = true, true
		c.mu.RUnlock()
		return append(out, newRequest(SRDS))
	}
	if s.scopes {
		c.mu.RUnlock()
		return out
	}
	if scoped {
		more, _ := s.routesOf(c, SRDS)
		maps.Copy(want, more)
	}
	for id, h := range s.held[RDS] {
		n := c.list[RDS][id].text
		switch {
		case h == none:
		case want[n]:
			delete(want, n)
		default:
			remove = append(remove, n)
		}
	}
	c.mu.RUnlock()
	for rc := range want {
		add = append(add, rc)
	}
	slices.Sort(add)
	s.dropHosts(c, remove)
	return s.resubscribe(RDS, c.ids(RDS, add), c.ids(RDS, remove), out)
}

// routesOf returns the route configurations of resources of a kind, and whether any uses scopes. It requires the
// catalog's lock.
func (s *state) routesOf(c *Catalog, k Kind) (want map[string]bool, scoped bool) {
	want = map[string]bool{}
	for id, h := range s.held[k] {
		if !h.has() {
			continue
		}
		v := c.list[k][id].versions[h-1]
		scoped = scoped || v.scopes
		for _, rc := range v.routes {
			want[rc] = true
		}
	}
	return want, scoped
}

// dropHosts drops the virtual hosts of route configurations that are no longer used.
func (s *state) dropHosts(c *Catalog, routes []string) {
	if len(routes) == 0 {
		return
	}
	gone := map[*name]bool{}
	for _, n := range c.ids(RDS, routes) {
		gone[n] = true
		delete(s.hosts, n.id)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id, h := range s.held[VHDS] {
		if h != none && gone[c.list[VHDS][id].parent] {
			s.held[VHDS][id] = none
		}
	}
}

// applyRoutes subscribes to virtual hosts once a route configuration uses VHDS.
func (s *state) applyRoutes(list []resolved, out []request) []request {
	for _, r := range list {
		old := s.get(RDS, r.name.id)
		if r.version != nil && r.version.hosts && old != none && !old.has() {
			if s.hosts == nil {
				s.hosts = map[int]bool{}
			}
			s.hosts[r.name.id] = true
			if !s.asked[VHDS] {
				s.asked[VHDS] = true
				out = append(out, newRequest(VHDS))
			}
		}
	}
	s.applyNamed(RDS, list)
	return out
}

// applyHosts processes virtual hosts of existing route configurations.
func (s *state) applyHosts(list []resolved) {
	for _, r := range list {
		if p := r.name.parent; p != nil {
			delete(s.hosts, p.id)
			if !s.get(RDS, p.id).has() {
				continue
			}
		}
		s.set(VHDS, r.name.id, r.held)
	}
}
