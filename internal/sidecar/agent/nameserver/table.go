// Package nameserver is the DNS proxy of a sidecar. It answers questions about names of the mesh, which the control
// plane sends, and forwards others to the servers of resolv.conf.
package nameserver

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/xds/nametable"
)

// Table holds the names of the mesh. It is safe for concurrent use.
type Table struct {
	namespace, domain string // of the workload; of the cluster
	search            []string

	mu     sync.RWMutex // guards the fields below
	loaded bool         // the first response was applied
	hosts  map[string]*host
}

// host is one name of the mesh.
type host struct {
	name       string
	v4, v6     []netip.Addr
	kubernetes bool
}

// NewTable returns an empty table. search are the suffixes that applications append.
func NewTable(namespace, domain string, search []string) *Table {
	t := &Table{namespace: namespace, domain: domain, hosts: map[string]*host{}}
	for _, s := range search {
		if s = normal(s); s != "" {
			t.search = append(t.search, s)
		}
	}
	return t
}

// normal returns a name in lower case without the final dot.
func normal(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Update replaces the hosts in now, and removes those in gone.
func (t *Table) Update(now []nametable.Entry, gone []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded = true
	for _, name := range gone {
		delete(t.hosts, normal(name))
	}
	for i := range now {
		h := newHost(&now[i])
		t.hosts[h.name] = h
	}
}

func newHost(e *nametable.Entry) *host {
	h := &host{name: normal(e.Host), kubernetes: e.Registry == nametable.Kubernetes}
	for _, text := range e.Addresses {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case a.Unmap().Is4():
			h.v4 = append(h.v4, a.Unmap())
		default:
			h.v6 = append(h.v6, a)
		}
	}
	return h
}

// Loaded reports whether the first response was applied.
func (t *Table) Loaded() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.loaded
}

// Len returns the number of hosts.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.hosts)
}

// lookup returns the host for a question; nil if other servers must be asked. alias is set if an application appended a
// search domain to a complete name: the answer then contains the name, which ends the search.
func (t *Table) lookup(question string) (h *host, alias string) {
	name := normal(question)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if h := t.find(name); h != nil {
		return h, ""
	}
	for _, s := range t.search {
		base, ok := strings.CutSuffix(name, "."+s)
		if !ok {
			continue
		}
		if h := t.hosts[base]; h != nil {
			return h, base
		}
	}
	return nil, ""
}

// find finds the host of a name, of a short form of a Service's name, or of a wildcard. mu is held.
func (t *Table) find(name string) *host {
	if h := t.hosts[name]; h != nil {
		return h
	}
	// "web", "web.shop" and "web.shop.svc" are short forms of a Service's name.
	rests := []string{"", t.namespace + ".svc." + t.domain, "svc." + t.domain, t.domain}
	if labels := strings.Count(name, ".") + 1; labels < len(rests) {
		if h := t.hosts[name+"."+rests[labels]]; h != nil && h.kubernetes {
			return h
		}
	}
	for rest := name; ; {
		_, parent, ok := strings.Cut(rest, ".")
		if !ok {
			return nil
		}
		if h := t.hosts["*."+parent]; h != nil {
			return h
		}
		rest = parent
	}
}

// addresses returns the addresses of one family, rotated by turn as other servers do.
func (h *host) addresses(v6 bool, turn int) []netip.Addr {
	list := h.v4
	if v6 {
		list = h.v6
	}
	if len(list) < 2 {
		return list
	}
	turn %= len(list)
	return slices.Concat(list[turn:], list[:turn])
}
