package modelcheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// envoy is a simulated Envoy: what it has, and how it answers. It is not connected: see client.
type envoy struct {
	picky bool // it refuses some resources
	sotw  bool

	has    [kinds]map[string]*resource
	listed [kinds]map[string]string // versions that it lists when it connects again (delta)
	// usable clusters had all that they need once. A changed cluster stays usable: Envoy uses the old one meanwhile.
	usable  map[string]bool
	warming map[string]bool             // clusters that wait for endpoints
	late    map[string]bool             // clusters that it refused at first: what refers to them did not wait
	refused [kinds]map[string]*resource // the newest content that it refused
	started [kinds]bool                 // it has subscribed to the type
	order   []kind                      // in which it did
	names   [kinds]map[string]bool      // subscriptions by name
	out     []request                   // not yet sent
}

// request is a request of either protocol.
type request struct {
	kind                   kind
	subscribe, unsubscribe []string
	initial                map[string]string
	nonce                  string
	version                string
	refusal                string // empty: an ACK, or no answer
}

// response is a response of either protocol.
type response struct {
	kind      kind
	nonce     string
	version   string
	resources []received
	removed   []string
}

type received struct {
	name, version string
	resource      *resource
}

func newEnvoy(picky bool) *envoy {
	e := &envoy{picky: picky, usable: map[string]bool{}, warming: map[string]bool{}, late: map[string]bool{}}
	for k := range kinds {
		e.has[k], e.listed[k], e.names[k], e.refused[k] = map[string]*resource{}, map[string]string{}, map[string]bool{}, map[string]*resource{}
	}
	return e
}

// clone returns an Envoy in the same state.
func (e *envoy) clone() *envoy {
	out := *e
	out.usable, out.warming, out.late = maps.Clone(e.usable), maps.Clone(e.warming), maps.Clone(e.late)
	for k := range kinds {
		out.has[k], out.listed[k] = maps.Clone(e.has[k]), maps.Clone(e.listed[k])
		out.refused[k], out.names[k] = maps.Clone(e.refused[k]), maps.Clone(e.names[k])
	}
	out.order, out.out = slices.Clone(e.order), nil
	return &out
}

func (e *envoy) request(r request) {
	for _, n := range r.unsubscribe {
		delete(e.names[r.kind], n)
	}
	for _, n := range r.subscribe {
		e.names[r.kind][n] = true
	}
	if !e.started[r.kind] {
		e.started[r.kind] = true
		e.order = append(e.order, r.kind)
	}
	e.out = append(e.out, r)
}

// connect begins a stream, with what the Envoy has from before.
func (e *envoy) connect() {
	e.out = nil
	if !e.started[cds] {
		e.request(request{kind: cds})
		return
	}
	for n := range e.warming { // the server cannot know what waits; Envoy's wait ends after 15 s
		if c := e.has[cds][n]; c == nil || e.has[eds][c.endpoints] != nil {
			delete(e.warming, n)
		}
	}
	for _, k := range e.order {
		r := request{kind: k, initial: maps.Clone(e.listed[k])}
		if kindTable[k].named {
			r.subscribe = slices.Sorted(maps.Keys(e.names[k]))
		}
		e.out = append(e.out, r)
	}
}

// bad reports whether a picky Envoy refuses a resource: always the same ones.
func (e *envoy) bad(k kind, r *resource) bool {
	return e.picky && (k == cds || k == lds || k == rds || k == vhds) && r.hash%17 == 3
}

// take applies a response and answers it. It returns an error if the response itself is wrong.
func (e *envoy) take(r *response) error {
	k := r.kind
	seen := map[string]bool{}
	for _, x := range r.resources {
		if seen[x.name] {
			return fmt.Errorf("%s: %s is twice in one response", k, x.name)
		}
		seen[x.name] = true
	}
	for _, n := range r.removed {
		if seen[n] {
			return fmt.Errorf("%s: %s is sent and removed in one response", k, n)
		}
	}
	if e.sotw && kindTable[k].whole {
		for n := range e.has[k] {
			if !seen[n] {
				r.removed = append(r.removed, n)
			}
		}
		slices.Sort(r.removed)
	}
	refusal := e.apply(r)
	e.follow()
	e.request(request{kind: k, nonce: r.nonce, version: r.version, refusal: refusal}) // the answer comes last, as in Envoy
	return nil
}

// apply applies a response, and returns why it is refused.
func (e *envoy) apply(r *response) (refusal string) {
	k := r.kind
	var bad []string
	for _, x := range r.resources {
		if e.bad(k, x.resource) {
			bad = append(bad, x.name)
			e.refused[k][x.name] = x.resource
		}
	}
	if len(bad) > 0 && !kindTable[k].partial {
		if len(r.resources)%2 == 0 {
			return "something is wrong"
		}
		return fmt.Sprintf("invalid: %s: bad", bad[0])
	}
	for _, x := range r.resources {
		if !slices.Contains(bad, x.name) {
			e.add(k, x)
		}
	}
	for _, n := range r.removed {
		e.remove(k, n)
	}
	if len(bad) > 0 {
		return "Error adding/updating: " + strings.Join(bad, ": bad, ") + ": bad"
	}
	return ""
}

func (e *envoy) add(k kind, x received) {
	old := e.has[k][x.name]
	switch k {
	case eds:
		if !e.names[eds][x.name] {
			return
		}
		for n, c := range e.has[cds] {
			if c.endpoints == x.name {
				delete(e.warming, n)
				delete(e.late, n)
				e.usable[n] = true
			}
		}
	case rds, sds:
		if !e.names[k][x.name] {
			return // it has unsubscribed meanwhile
		}
	case vhds:
		if rc := routeConfigOf(x.name); e.has[rds][rc] == nil {
			return
		}
	case cds, srds, lds, kinds:
	}
	if k == cds && old == nil && e.refused[cds][x.name] != nil {
		e.late[x.name] = true
	}
	delete(e.refused[k], x.name)
	e.has[k][x.name], e.listed[k][x.name] = x.resource, x.version
	if k == cds && (old == nil || old.hash != x.resource.hash) {
		if x.resource.endpoints != "" {
			e.warming[x.name] = true
		} else {
			delete(e.warming, x.name)
			e.usable[x.name] = true
		}
	}
}

func (e *envoy) remove(k kind, name string) {
	switch k {
	case cds:
		delete(e.usable, name)
		delete(e.late, name)
		delete(e.warming, name)
	case eds:
		for n, c := range e.has[cds] {
			if c.endpoints == name {
				delete(e.warming, n)
			}
		}
	case rds:
		return // Envoy keeps what a listener uses
	case sds, srds, lds, vhds, kinds:
	}
	delete(e.has[k], name)
	delete(e.listed[k], name)
	delete(e.refused[k], name)
}

// follow subscribes to what the Envoy's resources refer to, and unsubscribes from the rest.
func (e *envoy) follow() {
	want := [kinds]map[string]bool{}
	for k := range kinds {
		want[k] = map[string]bool{}
	}
	for _, c := range e.has[cds] {
		if c.endpoints != "" {
			want[eds][c.endpoints] = true
		}
	}
	scoped := e.started[srds]
	for _, l := range e.has[lds] {
		for _, n := range l.routes {
			want[rds][n] = true
		}
		scoped = scoped || l.scoped
	}
	for _, s := range e.has[srds] {
		want[rds][s.routes[0]] = true
	}
	for _, k := range []kind{cds, lds} {
		for _, r := range e.has[k] {
			for _, n := range r.secrets {
				want[sds][n] = true
			}
		}
	}
	for _, k := range []kind{sds, eds, rds} {
		e.subscribe(k, want[k])
	}
	onDemand := false
	for _, rc := range e.has[rds] {
		onDemand = onDemand || rc.onDemand
	}
	if onDemand && !e.started[vhds] {
		e.request(request{kind: vhds})
	}
	if scoped && !e.started[srds] {
		e.request(request{kind: srds})
	}
	if !e.started[lds] && len(e.warming) == 0 && len(e.has[cds]) > 0 {
		e.request(request{kind: lds})
	}
}

// subscribe makes the names of a type those that the Envoy wants.
func (e *envoy) subscribe(k kind, want map[string]bool) {
	r := request{kind: k}
	for _, n := range slices.Sorted(maps.Keys(want)) {
		if !e.names[k][n] {
			r.subscribe = append(r.subscribe, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(e.names[k])) {
		if !want[n] {
			r.unsubscribe = append(r.unsubscribe, n)
			delete(e.has[k], n)
			delete(e.listed[k], n)
			delete(e.refused[k], n)
			if k == rds {
				e.dropHosts(n)
			}
		}
	}
	if len(r.subscribe)+len(r.unsubscribe) > 0 {
		e.request(r)
	}
}

// dropHosts forgets the virtual hosts of a route configuration.
func (e *envoy) dropHosts(routeConfig string) {
	for n := range e.has[vhds] {
		if routeConfigOf(n) == routeConfig {
			delete(e.has[vhds], n)
			delete(e.listed[vhds], n)
			delete(e.refused[vhds], n)
		}
	}
}

func routeConfigOf(virtualHost string) string {
	return virtualHost[:max(strings.LastIndexByte(virtualHost, '/'), 0)]
}

// dangling returns a resource of the Envoy that refers to a cluster which it cannot use, unless ok explains it.
func (e *envoy) dangling(ok func(k kind, name string, r *resource, cluster string) bool) error {
	for _, k := range []kind{lds, rds, vhds} {
		for n, r := range e.has[k] {
			for _, c := range r.clusters {
				if e.usable[c] && e.has[cds][c] != nil || e.refused[cds][c] != nil || e.late[c] || ok(k, n, r, c) {
					continue
				}
				why := "does not exist"
				if e.has[cds][c] != nil {
					why = "waits for its endpoints"
				}
				return fmt.Errorf("%s %s refers to cluster %s, which %s", k, n, c, why)
			}
		}
	}
	return nil
}

// refuses reports whether the Envoy refuses anything.
func (e *envoy) refuses() bool {
	for k := range kinds {
		if len(e.refused[k]) > 0 {
			return true
		}
	}
	return false
}
