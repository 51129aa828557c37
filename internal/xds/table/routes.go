package table

import (
	"encoding/binary"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// routeSum determines the version of a whole route configuration: its header, and the sum of its
// virtual hosts' hashes. A changed virtual host costs the same in a configuration of ten and of ten
// thousand.
type routeSum struct {
	header *resource.Encoded // nil: there are virtual hosts without a header
	from   *model.Origins    // of the header
	sum    uint64
	hosts  int
}

func (r *routeSum) version() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], r.sum)
	binary.LittleEndian.PutUint64(b[8:], uint64(r.hosts))
	d := xxhash.New()
	_, _ = d.WriteString(r.header.Version)
	_, _ = d.Write(b[:])
	s := strconv.FormatUint(d.Sum64(), 16)
	return "0000000000000000"[len(s):] + s
}

// partHash returns the part of a name and version in a sum that identifies a set of resources.
func partHash(name, version string) uint64 {
	return xxhash.Sum64String(name + "\x00" + version)
}

// route returns the sum of a route configuration, and records that it changes.
func (w *commit) route(name string) *routeSum {
	if w.routes == nil {
		w.routes = map[string]bool{}
	}
	w.routes[name] = true
	r := w.table.routes[name]
	if r == nil {
		r = &routeSum{}
		w.table.routes[name] = r
	}
	return r
}

// header sets the header of a route configuration. It reports whether it changed.
func (w *commit) header(u *Update) bool {
	old := w.table.routes[u.Name]
	switch {
	case u.Resource == nil && (old == nil || old.header == nil),
		u.Resource != nil && old != nil && old.header != nil && old.header.Version == u.Resource.Version:
		w.reorigin(old, u)
		return false
	}
	r := w.route(u.Name)
	r.header, r.from = u.Resource, u.Origins
	return true
}

// reorigin sets the origins of a header that stays the same.
func (w *commit) reorigin(r *routeSum, u *Update) {
	if u.Resource == nil {
		return
	}
	r.from = u.Origins
	if e := w.next.columns[resource.RouteConfig].get(u.Name); e != nil {
		e.origins.Store(u.Origins)
	}
}

// part adds, changes or removes a virtual host.
func (w *commit) part(name string, old *Entry, r *resource.Encoded) {
	sum := w.route(RouteConfigOf(name))
	if old != nil {
		sum.sum -= partHash(name, old.Version)
		sum.hosts--
	}
	if r != nil {
		sum.sum += partHash(name, r.Version)
		sum.hosts++
	}
}

// assembleRoutes makes entries of the changed route configurations. The column of virtual hosts
// must be closed.
//
// Shards on demand are whole for all streams: Envoy takes a route configuration that a request asked for as complete when
// it comes, and would not wait for virtual hosts.
func (w *commit) assembleRoutes() {
	for name := range w.routes {
		r := w.table.routes[name]
		asked := routeshard.IsOnDemand(name)
		if r.header == nil {
			w.column(resource.RouteConfig).remove(name)
			if asked {
				w.column(resource.VHDSRouteConfig).remove(name)
			}
			if r.hosts == 0 {
				delete(w.table.routes, name)
			}
			continue
		}
		hosts := w.next.columns[resource.VirtualHost].under(name)
		e := &Entry{Name: name, Version: r.version(), whole: &assembly{header: r.header, hosts: hosts}}
		e.origins.Store(r.from)
		w.column(resource.RouteConfig).put(e)
		if asked {
			w.column(resource.VHDSRouteConfig).put(e)
		}
	}
}

// assembly is a whole route configuration that may not have been joined yet. It holds the subtree
// of its virtual hosts, not the whole tree.
type assembly struct {
	header *resource.Encoded
	hosts  subtree
	once   sync.Once
	joined *resource.Encoded // after once
}

func (a *assembly) resource(e *Entry) *resource.Encoded {
	a.once.Do(func() {
		parts := [][]byte{a.header.Value()}
		a.hosts.each(func(host *Entry) {
			parts = append(parts, host.resource.ValueField())
		})
		a.joined = resource.Join(resource.RouteConfig, e.Name, e.Version, parts...)
		a.hosts = subtree{} // they are in joined
	})
	return a.joined
}

// subtree has the virtual hosts of one route configuration.
type subtree struct {
	prefix string
	at     iradix.Iterator[*Entry]
}

// under returns the virtual hosts of a route configuration.
func (c *column) under(routeConfig string) subtree {
	s := subtree{prefix: routeConfig + "/", at: *c.live.Root().Iterator()}
	s.at.SeekPrefix([]byte(s.prefix))
	return s
}

// each calls f for each of them, in the order of their names.
func (s subtree) each(f func(*Entry)) {
	for it := s.at; ; {
		_, e, ok := it.Next()
		if !ok {
			return
		}
		if !strings.Contains(e.Name[len(s.prefix):], "/") {
			f(e)
		}
	}
}
