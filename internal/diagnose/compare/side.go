package compare

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

// Side is what one control plane gives to the proxies of a mesh.
type Side struct {
	Name    string // as users know it: "istiod", "Moonsail 1.2"
	Proxies []*Proxy
}

// Proxy is one proxy with everything that its control plane gives to it.
type Proxy struct {
	Name    string // NAME.NAMESPACE
	Gateway bool   // a router: it has no workload of its own
	IPs     []string
	// Principal is the URI name in its certificate, "spiffe://cluster.local/ns/shop/sa/reviews"; empty: it has none.
	Principal string
	World     *simulate.World
}

// namespace is the part of the name after the last Pod name.
func (p *Proxy) namespace() string {
	_, ns, _ := strings.Cut(p.Name, ".")
	return ns
}

// ip returns the first address of the proxy.
func (p *Proxy) ip() string {
	if len(p.IPs) == 0 {
		return elsewhere
	}
	return p.IPs[0]
}

// NodeProxy returns a proxy of a node as pilot-agent describes it to a control plane: an id
// "sidecar~IP~NAME.NAMESPACE~DOMAIN", and metadata. It has no resources yet.
func NodeProxy(id string, metadata map[string]any, trustDomain string) *Proxy {
	p := &Proxy{World: &simulate.World{}}
	parts := strings.Split(id, "~")
	if len(parts) == 4 {
		p.Gateway, p.Name = parts[0] == string(model.ProxyRouter), parts[2]
		p.IPs = []string{parts[1]}
	}
	text := func(key string) string {
		s, _ := metadata[key].(string)
		return s
	}
	if name, ns := text("NAME"), text("NAMESPACE"); name != "" && ns != "" {
		p.Name = name + "." + ns
	}
	if all := text("INSTANCE_IPS"); all != "" {
		p.IPs = strings.Split(all, ",")
	}
	p.Principal = model.Identity{
		TrustDomain: cmp.Or(trustDomain, model.DefaultMesh().TrustDomain), Namespace: p.namespace(),
		ServiceAccount: cmp.Or(text("SERVICE_ACCOUNT"), "default"),
	}.String()
	return p
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
		if right.byName[name] != nil {
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
