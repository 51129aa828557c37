// Package nameserver is the DNS proxy of a sidecar: it answers for the names of the mesh, which
// the control plane tells it, and asks the servers of resolv.conf for all others.
package nameserver

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/moonsail/moonsail/internal/xds/nametable"
)

// Table is what the control plane has told of names. It is safe for concurrent use.
type Table struct {
	namespace, domain string // the workload's, and the cluster's
	search            []string

	mu     sync.RWMutex // guards what follows
	loaded bool         // the first answer is complete
	hosts  map[string]*host
}

// host is one name of the mesh.
type host struct {
	name       string
	v4, v6     []netip.Addr
	kubernetes bool
}

// NewTable makes an empty one. search are the suffixes that applications try.
func NewTable(namespace, domain string, search []string) *Table {
	t := &Table{namespace: namespace, domain: domain, hosts: map[string]*host{}}
	for _, s := range search {
		if s = normal(s); s != "" {
			t.search = append(t.search, s)
		}
	}
	return t
}

// normal is a name without case and without the dot at its end.
func normal(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Update puts hosts in the place of what there was of them, and takes others away.
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

// Loaded tells whether the table has been told for the first time.
func (t *Table) Loaded() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.loaded
}

// Len is the number of hosts.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.hosts)
}

// lookup finds the host that a question means; nil: others are to be asked. alias is not
// empty where an application has put a search domain behind a name that is complete: it is
// told the name, so that it does not go on to search.
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

// find looks for a name as it is, for the short forms of a Service's, and for the wildcard that
// covers it. mu is held.
func (t *Table) find(name string) *host {
	if h := t.hosts[name]; h != nil {
		return h
	}
	// "web", "web.shop" and "web.shop.svc" are short for a Service's name.
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

// addresses are those of one family, in another order each time as other servers have it.
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
