package status

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// address is an address in a ServiceEntry's status, and its host.
type address struct {
	Value string `json:"value"`
	Host  string `json:"host"`
}

func addressOf(h model.Host, a netip.Addr) address { return address{a.String(), string(h)} }

// compare orders addresses by host, IPv4 first, as Istio writes them.
func (a address) compare(b address) int {
	return cmp.Or(strings.Compare(a.Host, b.Host), strings.Count(a.Value, ":")-strings.Count(b.Value, ":"), strings.Compare(a.Value, b.Value))
}

// assigned has the addresses that a ServiceEntry's status should have, and those that it had when they were
// computed. They influence the result, so that a status that has changed since must be computed again.
type assigned struct{ want, from []address }

// addresses returns what the statuses of a snapshot's ServiceEntries should have.
func addresses(snap *store.Snapshot, all map[model.Key]map[model.Host][]netip.Addr) map[model.Key]*assigned {
	out := make(map[model.Key]*assigned, len(all))
	for k, hosts := range all {
		g := &assigned{want: []address{}}
		for h, list := range hosts {
			for _, a := range list {
				g.want = append(g.want, addressOf(h, a))
			}
		}
		if e, ok := snap.Get(k).(*model.ServiceEntry); ok {
			for _, a := range e.Status {
				g.from = append(g.from, addressOf(a.Host, a.Address))
			}
		}
		slices.SortFunc(g.want, address.compare)
		slices.SortFunc(g.from, address.compare)
		out[k] = g
	}
	return out
}

// lacks reports whether addresses must be written into the status.
func (c *current) lacks(g *assigned) bool {
	return g != nil && (c.junk || !slices.Equal(c.addresses, g.want)) && slices.Equal(c.addresses, g.from)
}

// setAddresses sets the addresses of all ServiceEntries whose statuses should have some.
func (t *Tracker) setAddresses(all map[model.Key]*assigned) {
	t.each(func(k model.Key, o *object) bool {
		was := o.assigned
		o.assigned = all[k]
		return !reflect.DeepEqual(was, o.assigned)
	})
}
