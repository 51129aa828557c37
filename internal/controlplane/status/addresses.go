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

// address is one of a ServiceEntry's status: which host has it.
type address struct {
	Value string `json:"value"`
	Host  string `json:"host"`
}

func addressOf(h model.Host, a netip.Addr) address { return address{a.String(), string(h)} }

// compare orders them by host, IPv4 first, as Istio writes them.
func (a address) compare(b address) int {
	return cmp.Or(strings.Compare(a.Host, b.Host), strings.Count(a.Value, ":")-strings.Count(b.Value, ":"), strings.Compare(a.Value, b.Value))
}

// given is what a ServiceEntry's status should tell of addresses, and what it told when that was found out: that has
// a say in it, so that a status which tells something else by now is to be looked at again first.
type given struct{ want, from []address }

// addresses are what the statuses of a snapshot's ServiceEntries should tell.
func addresses(snap *store.Snapshot, all map[model.Key]map[model.Host][]netip.Addr) map[model.Key]*given {
	out := make(map[model.Key]*given, len(all))
	for k, hosts := range all {
		g := &given{want: []address{}}
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

// lacks tells whether addresses are to be written into the status.
func (c *current) lacks(g *given) bool {
	return g != nil && (c.junk || !slices.Equal(c.addresses, g.want)) && slices.Equal(c.addresses, g.from)
}

// setAddresses takes what ServiceEntries have got: of all of them whose statuses are to tell it.
func (b *Board) setAddresses(all map[model.Key]*given) {
	b.each(func(k model.Key, o *object) bool {
		was := o.given
		o.given = all[k]
		return !reflect.DeepEqual(was, o.given)
	})
}
