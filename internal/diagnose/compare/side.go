package compare

import (
	"slices"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Side is what one control plane gives to the proxies of a mesh.
type Side struct {
	Name    string // as users know it: "istiod", "Moonsail 1.2"
	Kind    Kind   // Unknown: that of its proxies
	Proxies []*Proxy
	// Only are the proxies whose calls Run makes; empty: all.
	Only []string
}

// Proxy is one proxy with everything that its control plane gives to it.
type Proxy struct {
	Name    string // NAME.NAMESPACE
	Gateway bool   // it is a gateway, which forwards calls and has no application
	IPs     []string
	// Principal is the URI name in its certificate, "spiffe://cluster.local/ns/shop/sa/reviews"; empty: it has none.
	Principal string
	World     *simulate.World
	// Kind is the kind of the control plane that the resources come from.
	Kind Kind
	// Node is how it describes itself; nil: unknown.
	Node *Node

	guessed bool // Principal has the default trust domain
	// madeFrom returns the objects that a resource was made from; nil: only what the resource names is known.
	madeFrom func(t resource.Type, name string) []model.Key
}

// ip returns the first address of the proxy.
func (p *Proxy) ip() string {
	if len(p.IPs) == 0 {
		return elsewhere
	}
	return p.IPs[0]
}

// opened is a side with indexes.
type opened struct {
	*Side
	byName map[string]*Proxy
	byIP   map[string]*Proxy
}

func open(s *Side) *opened {
	o := &opened{Side: s, byName: map[string]*Proxy{}, byIP: map[string]*Proxy{}}
	for _, p := range s.Proxies {
		o.byName[p.Name] = p
		for _, ip := range p.IPs {
			o.byIP[ip] = p
		}
	}
	return o
}

// shared returns the names of the proxies that both sides have, and of those that one side has. They are sorted.
func shared(left, right *opened) (both, onlyLeft, onlyRight []string) {
	for name := range left.byName {
		if r := right.byName[name]; r != nil {
			agree(left.byName[name], r)
			both = append(both, name)
		} else {
			onlyLeft = append(onlyLeft, name)
		}
	}
	for name := range right.byName {
		if left.byName[name] == nil {
			onlyRight = append(onlyRight, name)
		}
	}
	slices.Sort(both)
	slices.Sort(onlyLeft)
	slices.Sort(onlyRight)
	return both, onlyLeft, onlyRight
}

// agree takes an identity that one side knows for the other, too.
func agree(l, r *Proxy) {
	switch {
	case l.guessed && !r.guessed:
		l.Principal = r.Principal
	case r.guessed && !l.guessed:
		r.Principal = l.Principal
	}
}
