package preview

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// ProxyChange is what a proxy would be sent.
type ProxyChange struct {
	Proxy string `json:"proxy"`
	// Resources counts what is added, changed or removed, by type ("CDS").
	Resources map[string]int `json:"resources"`
	Bytes     int            `json:"bytes"` // of what is added or changed
}

// tableKey identifies the tables of a proxy. Proxies that are alike share them.
type tableKey [2]*table.Table

// content is what a table has, read once for all proxies that use the table.
type content struct {
	simulate.World
	entries [resource.NumTypes]map[string]*table.Entry
	users   map[string]*users // by cluster; nil: not computed yet
}

// world is everything that proxies with the same tables get.
type world struct {
	simulate.World
	tables [2]*content
}

// resourceDiff is what differs between the worlds of a proxy.
type resourceDiff struct {
	before, after *world
	names         map[resource.Type][]string // sorted
	bytes         int
}

// sent are the types that a proxy requests. Routers get whole route configurations.
func sent(t model.ProxyType) []resource.Type {
	if t == model.ProxyRouter {
		return []resource.Type{resource.Listener, resource.RouteConfig, resource.Cluster, resource.Endpoints, resource.Secret}
	}
	return []resource.Type{resource.Listener, resource.VHDSRouteConfig, resource.VirtualHost, resource.Cluster, resource.Endpoints, resource.NameTable}
}

// world returns what a proxy gets.
func (o *opened) world(p *model.Proxy) (*world, error) {
	if w := o.byProxy[p]; w != nil {
		return w, nil
	}
	var key tableKey
	copy(key[:], o.compiled.Tables(p))
	w, err := o.worldOf(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	o.byProxy[p] = w
	return w, nil
}

// worldOf returns what proxies with these tables get.
func (o *opened) worldOf(key tableKey) (*world, error) {
	if w := o.worlds[key]; w != nil {
		return w, nil
	}
	w := &world{}
	for i, tab := range key {
		c, err := o.content(tab)
		if err != nil {
			return nil, err
		}
		w.tables[i] = c
		w.Listeners = append(w.Listeners, c.Listeners...)
		w.Routes = append(w.Routes, c.Routes...)
		w.VirtualHosts = append(w.VirtualHosts, c.VirtualHosts...)
		w.Clusters = append(w.Clusters, c.Clusters...)
		w.Endpoints = append(w.Endpoints, c.Endpoints...)
	}
	o.worlds[key] = w
	return w, nil
}

// content reads a table; nil has nothing.
func (o *opened) content(tab *table.Table) (*content, error) {
	if c := o.contents[tab]; c != nil {
		return c, nil
	}
	c := &content{}
	for t := range resource.NumTypes {
		c.entries[t] = map[string]*table.Entry{}
		if tab == nil {
			continue
		}
		for e := range tab.State().All(t) {
			if t == resource.VirtualHost && tab.State().Get(resource.VHDSRouteConfig, table.RouteConfigOf(e.Name)) == nil {
				continue // no listener uses its route configuration, so it is not sent
			}
			c.entries[t][e.Name] = e
			if err := c.read(t, e); err != nil {
				return nil, fmt.Errorf("%s %s: %w", t, e.Name, err)
			}
		}
	}
	o.contents[tab] = c
	return c, nil
}

// known returns what a proxy gets, without resources that cannot be read. Compute has reported these.
func (o *opened) known(p *model.Proxy) *world {
	w, err := o.world(p)
	if err != nil {
		return &world{}
	}
	return w
}

// read adds a resource to what the simulator reads. Routes are those of VHDS, which all proxies' tables have.
func (c *content) read(t resource.Type, e *table.Entry) error {
	switch t {
	case resource.Listener, resource.VHDSRouteConfig, resource.VirtualHost, resource.Cluster, resource.Endpoints:
	default:
		return nil
	}
	packed := &anypb.Any{}
	if err := proto.Unmarshal(e.Resource().Any(), packed); err != nil {
		return err
	}
	m, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	c.Add(m)
	return nil
}

// resources compares what each proxy gets.
func (c *comparison) resources(ctx context.Context) error {
	c.diffs = map[*model.Proxy]*resourceDiff{}
	known := map[[2]*world]*resourceDiff{}
	parts := contentDiffs{}
	for _, p := range c.after.proxies {
		was := c.before.byName[p.String()]
		if was == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		c.report.Of++
		before, err := c.before.world(was)
		if err != nil {
			return fmt.Errorf("%s: %w", sideBefore, err)
		}
		after, err := c.after.world(p)
		if err != nil {
			return fmt.Errorf("%s: %w", sideAfter, err)
		}
		d := known[[2]*world{before, after}]
		if d == nil {
			d = parts.worlds(before, after, p.Type)
			known[[2]*world{before, after}] = d
		}
		if len(d.names) == 0 {
			continue
		}
		c.diffs[p] = d
		change := ProxyChange{Proxy: p.String(), Resources: map[string]int{}, Bytes: d.bytes}
		for t, names := range d.names {
			change.Resources[t.String()] += len(names)
		}
		c.report.Bytes += d.bytes
		c.report.Proxies = append(c.report.Proxies, change)
	}
	slices.SortFunc(c.report.Proxies, func(a, b ProxyChange) int { return strings.Compare(a.Proxy, b.Proxy) })
	return nil
}

// contentDiffs are the differences of tables, computed once for all proxies that use them.
type contentDiffs map[contentPair]*resourceDiff

type contentPair struct {
	before, after *content
	typ           model.ProxyType
}

func (k contentDiffs) worlds(before, after *world, typ model.ProxyType) *resourceDiff {
	d := &resourceDiff{before: before, after: after, names: map[resource.Type][]string{}}
	for i := range before.tables {
		pair := contentPair{before.tables[i], after.tables[i], typ}
		part := k[pair]
		if part == nil {
			part = compareContents(pair)
			k[pair] = part
		}
		d.bytes += part.bytes
		for t, names := range part.names {
			d.names[t] = append(d.names[t], names...)
		}
	}
	return d
}

func compareContents(p contentPair) *resourceDiff {
	d := &resourceDiff{names: map[resource.Type][]string{}}
	for _, t := range sent(p.typ) {
		for name, e := range p.after.entries[t] {
			if was := p.before.entries[t][name]; was == nil || was.Version != e.Version {
				d.names[t] = append(d.names[t], name)
				d.bytes += len(e.Resource().Any())
			}
		}
		for name := range p.before.entries[t] {
			if p.after.entries[t][name] == nil {
				d.names[t] = append(d.names[t], name)
			}
		}
		slices.Sort(d.names[t])
		if len(d.names[t]) == 0 {
			delete(d.names, t)
		}
	}
	return d
}

// sameContent reports whether two objects of one key have equal content. Where they come from and their versions do not
// count.
func sameContent(a, b model.Object) bool {
	if v := a.Metadata().ResourceVersion; v != "" && v == b.Metadata().ResourceVersion {
		return true
	}
	x, y := withoutSource(a), withoutSource(b)
	return reflect.DeepEqual(x, y)
}

// withoutSource returns a copy of an object without what depends on its source.
func withoutSource(o model.Object) any {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return o
	}
	c := reflect.New(v.Elem().Type())
	c.Elem().Set(v.Elem())
	if m, ok := c.Interface().(model.Object); ok {
		meta := m.Metadata()
		meta.ResourceVersion, meta.Origin, meta.Created = "", "", time.Time{}
	}
	return c.Interface()
}
