package ledger

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// envoy models Envoy's use of delta xDS. It subscribes to what it needs, refuses what is bad, keeps
// virtual hosts inside route configurations, and warms changed clusters until their endpoints come.
type envoy struct {
	r    *rand.Rand
	vhds bool

	clusters, endpoints, listeners map[string]held
	scopes                         map[string]held
	active                         map[string]held // listeners that accept connections: older than listeners while those warm
	waits                          map[string]bool // listeners that wait for the first scopes
	starting                       bool            // all listeners wait for each other
	asks                           bool            // it subscribed to SRDS
	scoped                         bool            // and SRDS was answered
	order                          []kind          // the order of the first requests of types, which each stream repeats
	routes                         map[string]*routeConfig
	warming                        map[string]bool        // clusters that wait for endpoints
	usable                         map[string]bool        // clusters of which some version is warm
	listed                         map[string]string      // virtual hosts and versions, including those of dropped route configurations
	refused                        [kinds]map[string]bool // clusters and endpoints that were refused, and not sent differently since

	// late: it requests endpoints of new clusters some time after it received the clusters, those
	// of the last ones first, as Envoy does while it starts.
	late  bool
	later map[string]bool

	// resolving: some cluster's name is not resolved yet. Meanwhile answers about clusters are withheld.
	resolving bool
	withheld  []Request

	sotw    *translator // nil: delta
	started [kinds]bool
	out     []Request // requests that the server has not read
}

type held struct {
	version string
	content
}

type routeConfig struct {
	held
	hosts  map[string]held
	stale  bool // no listener has used it since its last update
	loaded bool // its virtual hosts have come, or the notice that there are none
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

// connect begins a stream with the subscriptions and resources of before. It differs from Envoy in
// two things that no server can know. Envoy lists virtual hosts of route configurations that it has
// dropped, which misleads if the stream breaks right after it received the same one again. And
// Envoy does not report which of its clusters wait for endpoints.
func (e *envoy) connect() {
	e.out, e.resolving, e.withheld = nil, false, nil
	if e.started[eds] { // it requests all now
		clear(e.later)
	}
	if !e.started[cds] {
		e.request(cds, Request{})
		return
	}
	for n := range e.warming { // the wait is unknown to the server, and ends after 15 s
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

// resolve ends the wait for names, and gives the answers that were withheld. On a state-of-the-world stream that is one, to
// the last response, with the last error.
func (e *envoy) resolve() {
	list := e.withheld
	e.resolving, e.withheld = false, nil
	if e.sotw != nil && len(list) > 0 {
		last := list[len(list)-1]
		for _, a := range list {
			if last.Error == nil || a.Error != nil {
				last.Error = a.Error
			}
		}
		list = []Request{last}
	}
	for _, a := range list {
		e.request(cds, a)
	}
}

// refuses reports whether a NACK is withheld, or was, and is under way.
func (e *envoy) refuses() bool {
	return slices.ContainsFunc(slices.Concat(e.withheld, e.out), func(r Request) bool { return r.Error != nil })
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
	e.resolving = e.resolving || k == cds && e.r.IntN(4) == 0
	if k == cds && e.resolving {
		e.withheld = append(e.withheld, answer)
		return
	}
	e.request(k, answer)
	if e.r.IntN(2) == 0 { // subscriptions may precede the answer
		last := len(e.out) - 1
		e.out = slices.Insert(e.out[:last:last], before, e.out[last])
	}
}
