package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// envoy is what an Envoy does with delta xDS, as far as it matters here: it subscribes
// what it needs, refuses what is bad, keeps virtual hosts inside route configurations,
// and warms changed clusters until their endpoints come.
type envoy struct {
	r    *rand.Rand
	vhds bool

	clusters, endpoints, listeners map[string]held
	scopes                         map[string]held
	active                         map[string]held // listeners that take connections: older than listeners while those warm
	waits                          map[string]bool // listeners that wait for the first scopes
	starting                       bool            // all listeners wait for each other
	asks                           bool            // SRDS is subscribed
	scoped                         bool            // and was answered
	order                          []kind          // in which types were asked for first: in it they are asked for on each stream
	routes                         map[string]*routeConfig
	warming                        map[string]bool        // clusters that wait for endpoints
	usable                         map[string]bool        // clusters of which some version is warm
	listed                         map[string]string      // virtual hosts and versions, also of dropped ones
	refused                        [kinds]map[string]bool // clusters and endpoints that were refused, and not sent differently since

	// late: it looks for endpoints of new clusters some time after it has taken them, those
	// of later, as Envoy does before it has all clusters at start.
	late  bool
	later map[string]bool

	sotw    *translator // nil: delta
	started [kinds]bool
	out     []Request // not yet read by the server
}

type held struct {
	version string
	content
}

type routeConfig struct {
	held
	hosts  map[string]held
	stale  bool // no listener used it since it was updated last
	loaded bool // its virtual hosts have come, or word that there are none
}

func newEnvoy(r *rand.Rand, vhds bool) *envoy {
	return &envoy{r: r, vhds: vhds, starting: true, clusters: map[string]held{}, endpoints: map[string]held{}, listeners: map[string]held{},
		scopes: map[string]held{}, active: map[string]held{}, waits: map[string]bool{},
		routes: map[string]*routeConfig{}, warming: map[string]bool{}, later: map[string]bool{}, usable: map[string]bool{}, listed: map[string]string{},
		refused: [kinds]map[string]bool{cds: {}, eds: {}}}
}

var urls = [kinds]string{resource.ClusterURL, resource.EndpointsURL, resource.SecretURL, resource.ScopeURL, resource.ListenerURL, resource.RouteConfigURL, resource.VirtualHostURL, resource.NameTableURL}

func (e *envoy) request(k kind, r Request) {
	r.TypeURL = []byte(urls[k])
	if e.sotw != nil {
		r = e.sotw.request(r)
	}
	e.out = append(e.out, r)
	if !e.started[k] {
		e.order = append(e.order, k)
	}
	e.started[k] = true
}

func slices2(names ...string) (out [][]byte) {
	for _, n := range names {
		out = append(out, []byte(n))
	}
	return out
}

// connect begins a stream: with what was subscribed before, and what is held of it. In
// two things it is better than Envoy, where no server could know better: Envoy lists
// virtual hosts of route configurations that it has dropped, which misleads where the
// stream breaks just after it got the same one again; and it does not tell which of its
// clusters wait for endpoints.
func (e *envoy) connect() {
	e.out = nil
	if e.started[eds] { // all are asked for now
		clear(e.later)
	}
	if !e.started[cds] {
		e.request(cds, Request{})
		return
	}
	for n := range e.warming { // nobody can know that it waits; it stops by itself after 15 s
		if _, ok := e.endpoints[n]; ok {
			delete(e.warming, n)
		}
	}
	has := func(m map[string]held) (out []NameVersion) {
		for _, n := range slices.Sorted(maps.Keys(m)) {
			out = append(out, NameVersion{[]byte(n), []byte(m[n].version)})
		}
		return out
	}
	shells := map[string]held{}
	for n, rc := range e.routes {
		if rc.version != "" {
			shells[n] = rc.held
		}
	}
	var hosts []NameVersion
	for _, n := range slices.Sorted(maps.Keys(e.listed)) {
		hosts = append(hosts, NameVersion{[]byte(n), []byte(e.listed[n])})
	}
	for _, k := range e.order {
		switch k {
		case cds:
			e.request(cds, Request{Initial: has(e.clusters)})
		case eds:
			e.request(eds, Request{Subscribe: slices2(e.edsNames()...), Initial: has(e.endpoints)})
		case srds:
			e.request(srds, Request{Initial: has(e.scopes)})
		case lds:
			e.request(lds, Request{Initial: has(e.listeners)})
		case rds:
			e.request(rds, Request{Subscribe: slices2(slices.Sorted(maps.Keys(e.routes))...), Initial: has(shells)})
		case vhds:
			e.request(vhds, Request{Initial: hosts})
		}
	}
}

func (e *envoy) edsNames() (out []string) {
	for _, n := range slices.Sorted(maps.Keys(e.clusters)) {
		if e.clusters[n].eds {
			out = append(out, n)
		}
	}
	return out
}

func kindOfType(t resource.Type) kind {
	for k, u := range urls {
		if u == t.URL() {
			return kind(k)
		}
	}
	panic(t)
}

// take applies a response and answers it.
func (e *envoy) take(r Response) {
	k := kindOfType(r.Type)
	var entries []*table.Entry
	seen := map[string]bool{}
	for _, p := range r.Parts {
		if p == nil {
			continue
		}
		for _, en := range p.Entries {
			if seen[en.Name] {
				panic("twice in one response: " + en.Name)
			}
			seen[en.Name] = true
			entries = append(entries, en)
		}
	}
	for _, n := range r.Removed {
		if seen[n] {
			panic("sent and removed: " + n)
		}
	}
	answer := Request{Nonce: []byte(strconv.FormatUint(r.Nonce, 10))}
	before := len(e.out)
	answer.Error = e.apply(k, entries, r.Removed)
	e.request(k, answer)
	if e.r.IntN(2) == 0 { // the subscriptions that follow may also go first
		last := len(e.out) - 1
		e.out = slices.Insert(e.out[:last:last], before, e.out[last])
	}
}

// apply applies a response, as far as its type's parts can be refused alone.
func (e *envoy) apply(k kind, entries []*table.Entry, removed []string) *Error {
	var bad []string
	for _, en := range entries {
		if c, hosts := decode(en.Resource().Value()); c.bad || slices.ContainsFunc(hosts, func(h content) bool { return h.bad }) {
			bad = append(bad, en.Name)
		}
	}
	partial := k == cds || k == lds || k == srds
	if len(bad) > 0 && !partial {
		if k == eds { // with the good ones beside them, which are sent again
			for _, en := range entries {
				e.refused[eds][en.Name] = true
			}
		}
		if e.r.IntN(2) == 0 {
			return &Error{Message: "something is wrong, but it is not said with what"}
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
			return // Envoy compares
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
	case lds: // the one that has it ask for scopes waits for them, and those that come as it starts
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
		scoped := bucket.RouteConfig(rc) != rc // it goes with its scope
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
