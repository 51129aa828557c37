package model

import "slices"

// KindProxyConfig is Istio's kind of that name.
const KindProxyConfig Kind = "ProxyConfig"

// ProxyConfig says how sidecars are run. It counts when a Pod gets its sidecar: no resource of
// xDS depends on it.
type ProxyConfig struct {
	Meta
	Selector    map[string]string // empty: all of its namespace or, in the root namespace, of the mesh
	Concurrency *int32            // worker threads; 0: one a core; nil: nothing is said
	Environment map[string]string // of the sidecar
	ImageType   string            // empty: nothing is said
}

// ProxyConfigs are what is said of a mesh's sidecars.
type ProxyConfigs struct {
	Default       string // the mesh's defaultConfig, as JSON; empty: there is none
	RootNamespace string
	LocalInbound  bool           // applications listen at the loopback address
	OutboundPort  uint32         // of the mesh's sidecars; 0: Istio's
	InboundPort   uint32         // likewise
	List          []*ProxyConfig // the oldest first
}

// TakeMesh takes what the mesh's configuration says.
func (p *ProxyConfigs) TakeMesh(m *MeshConfig) {
	p.Default, p.LocalInbound = m.ProxyDefaults, m.LocalInbound != nil && *m.LocalInbound
	set(&p.OutboundPort, m.OutboundPort)
	set(&p.InboundPort, m.InboundPort)
}

// Add takes an object, if it is a ProxyConfig, in its place.
func (p *ProxyConfigs) Add(o Object) {
	if c, ok := o.(*ProxyConfig); ok {
		p.List = append(p.List, c)
		slices.SortFunc(p.List, func(a, b *ProxyConfig) int { return CompareAge(a, b) })
	}
}

// Of are those for a workload: at most one of the root namespace and one of its own, under its
// annotation; and one that selects it, over that, as in Istio. nil: there is none.
func (p *ProxyConfigs) Of(namespace string, labels map[string]string) (root, own, selecting *ProxyConfig) {
	for _, c := range p.List {
		switch {
		case c.Namespace == namespace && len(c.Selector) > 0:
			if selecting == nil && SelectorMatches(c.Selector, labels) {
				selecting = c
			}
		case len(c.Selector) > 0:
		case c.Namespace == p.RootNamespace && root == nil:
			root = c
		case c.Namespace == namespace && c.Namespace != p.RootNamespace && own == nil:
			own = c
		}
	}
	return root, own, selecting
}
