package analyze

import "github.com/moonsail/moonsail/internal/model"

// proxyConfig reports a ProxyConfig without effect: one that selects no workload, or that stands beside an older one.
func (c serviceChecks) proxyConfig(p *model.ProxyConfig) {
	if len(p.Selector) > 0 && !ruleChecks(c).selectsAny(p.Namespace, p.Selector) {
		c.warnf(p, "spec.selector", "no workload of namespace %s has %s, so the ProxyConfig has no effect; correct the labels",
			p.Namespace, labelText(p.Selector))
	}
	if len(p.Selector) > 0 {
		return
	}
	for _, other := range c.proxies.List {
		if other.Namespace == p.Namespace && len(other.Selector) == 0 && model.Older(other, p) {
			c.warnf(p, "spec", "%s is for all of namespace %s, too, and is older, so this one has no effect; merge the two", other.Name, p.Namespace)
			return
		}
	}
}
