package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// groups are the open proxy groups, each with its table and the number of streams that use it. Run's
// goroutine owns them.
//
// A proxy selects its groups by what it reports about itself: labels, locality, node and more. Each group
// that no other proxy has is computed and stored. So a client with one certificate of the mesh could open
// any number of groups. perIdentity limits them for each verified identity.
type groups struct {
	deriver     *derive.Deriver
	failures    *failures
	perIdentity int // 0 or less: no limit

	open   map[derive.GroupKey]*group
	opened map[identity]int // number of open groups by the identity that opened them; no value is 0
}

// group is one open proxy group.
type group struct {
	table     *table.Table
	patches   *envoyfilter.Set // in force; replaced only by the translation of this group
	openedBy  identity
	users     int
	idleSince time.Time // when its last user disconnected; valid while users is 0
}

// identity is the verified identity for which a group was opened. The zero value is a proxy without one,
// such as on the plain-text port, where every proxy is trusted.
type identity struct{ namespace, account string }

func identityOf(p *model.Proxy) identity {
	if !p.Verified {
		return identity{}
	}
	return identity{p.Namespace, p.ServiceAccount}
}

func newGroups(d *derive.Deriver, f *failures, perIdentity int) *groups {
	return &groups{deriver: d, failures: f, perIdentity: perIdentity, open: map[derive.GroupKey]*group{}, opened: map[identity]int{}}
}

// use adds a user to the groups of these keys, and opens those that are not open. The content of a
// new group goes to deltas.
func (g *groups) use(keys [2]derive.GroupKey, p *model.Proxy, deltas map[derive.GroupKey]*derive.Delta) {
	for _, k := range keys {
		s := g.open[k]
		if s == nil {
			s = &group{table: newTable(&k), openedBy: identityOf(p)}
			if s.openedBy != (identity{}) {
				g.opened[s.openedBy]++
			}
			g.open[k] = s
			deltas[k] = g.deriver.Open(k)
		}
		s.users++
	}
}

// release removes a user from the groups of these keys.
func (g *groups) release(keys [2]derive.GroupKey) {
	for _, k := range keys {
		s := g.open[k]
		s.users--
		if s.users == 0 {
			s.idleSince = time.Now()
		}
	}
}

// tables returns the tables of open groups.
func (g *groups) tables(keys [2]derive.GroupKey) []*table.Table {
	return []*table.Table{g.open[keys[0]].table, g.open[keys[1]].table}
}

// admits returns an error if n more groups would exceed the limit of a proxy's identity. If they would,
// it first closes the unused groups of that identity.
func (g *groups) admits(p *model.Proxy, n int) error {
	id := identityOf(p)
	if id == (identity{}) || g.perIdentity <= 0 || n == 0 || g.opened[id]+n <= g.perIdentity {
		return nil
	}
	for k, s := range g.open {
		if s.openedBy == id && s.users == 0 {
			g.close(k)
		}
	}
	if g.opened[id]+n <= g.perIdentity {
		return nil
	}
	return &TooManyGroups{id.namespace, id.account, g.perIdentity}
}

// missing counts the keys whose groups are not open.
func (g *groups) missing(keys [2]derive.GroupKey) int {
	n := 0
	for _, k := range keys {
		if g.open[k] == nil {
			n++
		}
	}
	return n
}

// closeIdle closes the groups that have had no user since a moment.
func (g *groups) closeIdle(since time.Time) {
	for k, s := range g.open {
		if s.users == 0 && !s.idleSince.After(since) {
			g.close(k)
		}
	}
}

func (g *groups) close(k derive.GroupKey) {
	if id := g.open[k].openedBy; id != (identity{}) {
		if g.opened[id]--; g.opened[id] == 0 {
			delete(g.opened, id)
		}
	}
	g.deriver.Close(k)
	delete(g.open, k)
	g.failures.forgetGroup(k)
}

// PatchMatch is a patch of an EnvoyFilter, and whether it finds something to change in some proxy group.
type PatchMatch struct {
	ir.Patch
	Matched bool
}

// patchMatches lists the patches of all open groups that need something to change, by object and index.
func (g *groups) patchMatches() []PatchMatch {
	type id struct {
		origin model.Key
		index  int
	}
	found := map[id]PatchMatch{}
	for _, s := range g.open {
		for p, matched := range s.patches.Matched() {
			k := id{p.Origin, p.Index}
			found[k] = PatchMatch{*p, matched || found[k].Matched}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b PatchMatch) int {
		return cmp.Or(a.Origin.Compare(b.Origin), cmp.Compare(a.Index, b.Index))
	})
}

// GroupInfo describes one open proxy group.
type GroupInfo struct {
	Name    string          `json:"name"`
	Key     derive.GroupKey `json:"key"`
	Proxies int             `json:"proxies"`
	// Resources counts the entries of the table by type.
	Resources map[string]int `json:"resources"`
	Revision  model.Revision `json:"revision"`
}

// infos describes all open groups, by name.
func (g *groups) infos() []GroupInfo {
	var out []GroupInfo
	for _, k := range g.deriver.Groups() {
		s := g.open[k]
		state := s.table.State()
		out = append(out, GroupInfo{Name: k.String(), Key: k, Proxies: s.users, Resources: countResources(state), Revision: state.Revision})
	}
	return out
}

// countResources counts the entries of a table by type. VHDSRouteConfig is left out: it is a second form
// of RouteConfig.
func countResources(s *table.State) map[string]int {
	out := map[string]int{}
	for _, t := range []resource.Type{resource.Cluster, resource.Endpoints, resource.Secret, resource.Scope, resource.Listener, resource.RouteConfig, resource.VirtualHost, resource.NameTable, resource.Extension, resource.Bootstrap} {
		out[t.String()] = s.Len(t)
	}
	return out
}

// DefaultGroupsPerIdentity is the default of Options.GroupsPerIdentity in the control plane. It is far more
// than the workloads of one service account need: the Pods of a Deployment share two groups.
const DefaultGroupsPerIdentity = 4096

// TooManyGroups is the error of Bind for a proxy whose identity has reached its limit of proxy groups.
type TooManyGroups struct {
	Namespace, Account string
	Limit              int
}

func (e *TooManyGroups) Error() string {
	return fmt.Sprintf("service account %s in namespace %s: its proxies have %d proxy groups open, which is the limit: "+
		"use fewer different labels, localities or nodes, or raise --max-scopes-per-identity",
		e.Account, e.Namespace, e.Limit)
}

func newTable(k *derive.GroupKey) *table.Table {
	if k.OnDemand() {
		return table.NewOnDemand(k.String(), k.Origins())
	}
	return table.NewFor(k.String(), k.Origins())
}
