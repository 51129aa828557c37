package fleet

import "fmt"

// Holdings are the resources of a proxy: versions by kind and name.
type Holdings [Kinds]map[string]string

// Holdings returns the resources that the proxy has now.
func (p *Proxy) Holdings() Holdings {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.fleet.Catalog
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out Holdings
	for k := range Kinds {
		out[k] = map[string]string{}
		for id, h := range p.state.held[k] {
			if h.has() {
				name, version := c.text(k, id, h)
				out[k][name] = version
			}
		}
	}
	return out
}

// Ready reports whether the proxy has all resources that it subscribed to.
func (p *Proxy) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.ready
}

// Differs compares the resources of p and of other, which has the same Catalog, and describes the first differences. It
// ignores names for which skip returns true.
func (p *Proxy) Differs(other *Proxy, limit int, skip func(k Kind, name string) bool) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	c := p.fleet.Catalog
	c.mu.RLock()
	defer c.mu.RUnlock()
	for k := range Kinds {
		for id := range max(len(p.state.held[k]), len(other.state.held[k])) {
			a, b := p.state.get(k, id), other.state.get(k, id)
			if a == b || !a.has() && !b.has() || skip != nil && skip(k, c.list[k][id].text) {
				continue
			}
			if len(out) < limit {
				out = append(out, c.difference(k, id, a, b))
			}
		}
	}
	return out
}

func (c *Catalog) difference(k Kind, id int, a, b held) string {
	name, has := c.text(k, id, a)
	_, fresh := c.text(k, id, b)
	switch {
	case !a.has():
		return fmt.Sprintf("%s %s is missing", k, name)
	case !b.has():
		return fmt.Sprintf("%s %s should have been removed", k, name)
	}
	return fmt.Sprintf("%s %s is stale: version %s, should be %s", k, name, has, fresh)
}
