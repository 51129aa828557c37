package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// world is a table and its expected content. In each of its revisions, everything that is referred
// to exists.
type world struct {
	r     *rand.Rand
	table *table.Table
	has   map[resource.Type]map[string]content
	dirty map[resource.Type]map[string]bool
	bad   bool              // it may have resources that are refused
	split bool              // it may have sharded route configurations
	spare map[string]string // by port: a form that no listener uses now
	next  int
}

func newWorld(r *rand.Rand, name string, bad bool) *world {
	w := &world{r: r, table: table.New(name), has: map[resource.Type]map[string]content{}, dirty: map[resource.Type]map[string]bool{}, spare: map[string]string{}, bad: bad}
	for t := range resource.NumTypes {
		w.has[t], w.dirty[t] = map[string]content{}, map[string]bool{}
	}
	return w
}

func (w *world) set(t resource.Type, name string, c content) {
	w.next++
	c.n = w.next
	if w.r.IntN(6) == 0 {
		c.n = 0 // sometimes an earlier content comes back
	}
	c.bad = w.bad && t != resource.VHDSRouteConfig && t != resource.Scope && w.r.IntN(12) == 0
	w.has[t][name] = c
	w.dirty[t][name] = true
	if t == resource.RouteConfig { // the form for VHDS is not refused on its own
		w.set(resource.VHDSRouteConfig, name, content{})
	}
}

func (w *world) drop(t resource.Type, name string) {
	delete(w.has[t], name)
	w.dirty[t][name] = true
	if t == resource.RouteConfig {
		w.drop(resource.VHDSRouteConfig, name)
	}
}

func (w *world) any(t resource.Type) string {
	names := slices.Sorted(maps.Keys(w.has[t]))
	if len(names) == 0 {
		return ""
	}
	return names[w.r.IntN(len(names))]
}

func (w *world) refs(n int) (out []string) {
	for range n {
		if c := w.any(resource.Cluster); c != "" && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// commit commits the changes.
func (w *world) commit(rev model.Revision) {
	var updates []table.Update
	for t := range resource.NumTypes {
		for _, name := range slices.Sorted(maps.Keys(w.dirty[t])) {
			u := table.Update{Type: t, Name: name}
			if c, ok := w.has[t][name]; ok {
				u.Resource = c.encode(t, name)
			}
			updates = append(updates, u)
		}
		clear(w.dirty[t])
	}
	w.table.Commit(rev, updates)
}

// event makes a random change of the mesh.
func (w *world) event() {
	switch w.r.IntN(12) {
	case 0, 1:
		w.addService()
	case 2:
		w.removeService()
	case 3, 4:
		if c := w.any(resource.Endpoints); c != "" {
			w.set(resource.Endpoints, c, content{})
		}
	case 5:
		if c := w.any(resource.Cluster); c != "" {
			w.set(resource.Cluster, c, content{eds: w.has[resource.Cluster][c].eds})
		}
	case 6, 7, 8:
		if v := w.any(resource.VirtualHost); v != "" {
			w.set(resource.VirtualHost, v, content{refs: w.refs(2)})
		}
	case 9:
		w.addRoutes()
	case 10:
		w.removeRoutes()
	case 11:
		w.addListener()
	}
}

func (w *world) addService() {
	name := fmt.Sprintf("outbound|80||s%d.ns", w.r.IntN(14))
	eds := w.r.IntN(4) > 0
	if old, ok := w.has[resource.Cluster][name]; ok {
		eds = old.eds
	}
	w.set(resource.Cluster, name, content{eds: eds})
	if eds {
		w.set(resource.Endpoints, name, content{})
	}
	if rc := w.any(resource.RouteConfig); rc != "" {
		w.set(resource.VirtualHost, rc+"/"+name[len("outbound|80||"):], content{refs: []string{name}})
	}
}

// removeService removes a cluster. Resources that referred to it refer to others.
func (w *world) removeService() {
	name := w.any(resource.Cluster)
	if name == "" {
		return
	}
	w.drop(resource.Cluster, name)
	if _, ok := w.has[resource.Endpoints][name]; ok {
		w.drop(resource.Endpoints, name)
	}
	for _, t := range []resource.Type{resource.VirtualHost, resource.Listener} {
		for _, user := range slices.Sorted(maps.Keys(w.has[t])) {
			c := w.has[t][user]
			if !slices.Contains(c.refs, name) {
				continue
			}
			if w.r.IntN(2) == 0 && t == resource.VirtualHost {
				w.drop(t, user)
				continue
			}
			c.refs = slices.DeleteFunc(slices.Clone(c.refs), func(r string) bool { return r == name })
			w.set(t, user, c)
		}
	}
}

// partsOf returns the route configurations that "80~2" or "80~4" is divided into.
func partsOf(split string) []string {
	routeConfig, n, _ := strings.Cut(split, "~")
	bits := len(n) // "2" and "4" are enough
	if n == "4" {
		bits = 2
	}
	return []string{routeshard.Name(routeConfig, bits, 0), routeshard.Name(routeConfig, bits, 1), routeshard.Name(routeConfig, bits, bits)}
}

func (w *world) addRoutes() {
	if w.split {
		w.addSplitRoutes()
		return
	}
	rc := fmt.Sprint(80 + w.r.IntN(3))
	w.set(resource.RouteConfig, rc, content{})
	w.set(resource.Listener, "0.0.0.0_"+rc, content{refs: []string{"rc:" + rc}})
	for range w.r.IntN(3) {
		w.set(resource.VirtualHost, fmt.Sprintf("%s/v%d.ns", rc, w.r.IntN(4)), content{refs: w.refs(1)})
	}
}

// addSplitRoutes serves a port by a route configuration, or by scopes of two sizes. What its
// listener used before stays for a while, or is removed.
func (w *world) addSplitRoutes() {
	port := fmt.Sprint(80 + w.r.IntN(3))
	form := []string{"rc:" + port, "sc:" + port + "~2", "sc:" + port + "~4"}[w.r.IntN(3)]
	listener := "0.0.0.0_" + port
	if spare := w.spare[port]; spare != "" && spare != form {
		w.dropRoutes(spare)
	}
	delete(w.spare, port)
	if old := w.has[resource.Listener][listener].refs; len(old) > 0 && old[0] != form {
		if w.r.IntN(2) == 0 {
			w.spare[port] = old[0]
		} else {
			w.dropRoutes(old[0])
		}
	}
	parts := []string{form[3:]}
	if form[:3] == "sc:" {
		w.askForScopes()
		parts = partsOf(form[3:])
		for _, part := range parts {
			if _, ok := w.has[resource.Scope][part]; !ok {
				w.set(resource.Scope, part, content{})
			}
		}
	}
	for _, part := range parts {
		w.set(resource.RouteConfig, part, content{})
		for range w.r.IntN(2) {
			w.set(resource.VirtualHost, fmt.Sprintf("%s/v%d.ns", part, w.r.IntN(4)), content{refs: w.refs(1)})
		}
	}
	w.set(resource.Listener, listener, content{refs: []string{form}})
}

// askForScopes adds the listener that proxies with scopes have. It stays.
func (w *world) askForScopes() {
	if _, ok := w.has[resource.Listener][routeshard.Listener]; !ok {
		w.set(resource.Listener, routeshard.Listener, content{refs: []string{"ask:"}})
	}
}

// dropRoutes removes what a listener's reference leads to.
func (w *world) dropRoutes(ref string) {
	parts := []string{ref[3:]}
	if ref[:3] == "sc:" {
		parts = partsOf(ref[3:])
	}
	for _, part := range parts {
		if _, ok := w.has[resource.Scope][part]; ok {
			w.drop(resource.Scope, part)
		}
		w.drop(resource.RouteConfig, part)
		for _, v := range slices.Sorted(maps.Keys(w.has[resource.VirtualHost])) {
			if strings.HasPrefix(v, part+"/") {
				w.drop(resource.VirtualHost, v)
			}
		}
	}
}

func (w *world) removeRoutes() {
	rc := w.any(resource.RouteConfig)
	if rc == "" {
		return
	}
	if w.split {
		port := routeshard.RouteConfig(rc)
		listener := "0.0.0.0_" + port
		if spare := w.spare[port]; spare != "" {
			w.dropRoutes(spare)
			delete(w.spare, port)
		}
		w.dropRoutes(w.has[resource.Listener][listener].refs[0])
		w.drop(resource.Listener, listener)
		return
	}
	w.drop(resource.RouteConfig, rc)
	w.drop(resource.Listener, "0.0.0.0_"+rc)
	for _, v := range slices.Sorted(maps.Keys(w.has[resource.VirtualHost])) {
		if strings.HasPrefix(v, rc+"/") {
			w.drop(resource.VirtualHost, v)
		}
	}
}

func (w *world) addListener() {
	name := fmt.Sprintf("10.0.0.%d_3306", w.r.IntN(4))
	if _, ok := w.has[resource.Listener][name]; ok && w.r.IntN(2) == 0 {
		w.drop(resource.Listener, name)
		return
	}
	w.set(resource.Listener, name, content{refs: w.refs(1)})
}
