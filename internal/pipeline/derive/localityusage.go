package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// localityUsage counts who asks where clients are. Only that tells scopes apart.
type localityUsage struct {
	localities, nodes int
	namespaces        map[string]model.Distribution // of their services that say nothing
}

// count tells whether localities or nodes began or ceased to matter.
func (n *localityUsage) count(d model.Distribution, by int) bool {
	if d == model.DistributionUnset {
		return false
	}
	return n.add(by, by*matters(slices.Contains(d.Labels(), model.LabelNode)))
}

// countRule is count for a rule.
func (n *localityUsage) countRule(r *model.DestinationRule, by int) bool {
	locality, node := usesLocality(r)
	return n.add(by*matters(locality), by*matters(node))
}

// countMesh is count for the mesh's settings. Failover counts where there is outlier detection: that of rules is counted
// with them.
func (n *localityUsage) countMesh(mesh *model.Mesh, by int) bool {
	outlier := by * matters(mesh.Baseline.OutlierDetection != nil)
	set := mesh.Locality
	if set == nil {
		return n.add(outlier, 0)
	}
	return n.add(outlier+by*matters(len(set.Distribute) > 0), by*matters(slices.Contains(set.FailoverPriority, model.LabelNode)))
}

func matters(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (n *localityUsage) add(localities, nodes int) bool {
	locality, node := n.localities > 0, n.nodes > 0
	n.localities, n.nodes = n.localities+localities, n.nodes+nodes
	return locality != (n.localities > 0) || node != (n.nodes > 0)
}

// locate puts into a scope's key what anybody asks of where a proxy is.
func (n *localityUsage) locate(k *GroupKey, x *endpointIndex, p *model.Proxy) {
	if n.localities > 0 {
		k.Locality = x.whereProxy(p)
	}
	if n.nodes > 0 {
		k.Node = x.nodeOf(p)
	}
}

// of is the distribution of a service: its own, or else its namespace's.
func (n *localityUsage) of(svc *model.Service) model.Distribution {
	if svc.Distribution != model.DistributionUnset {
		return svc.Distribution
	}
	return n.namespaces[svc.Namespace]
}

// replaceNamespace touches the services of a namespace whose distribution is another than before.
func (x *Index) replaceNamespace(old, now *model.Namespace, touched *touched) {
	var was, is model.Distribution
	var ns string
	if old != nil {
		ns, was = old.Name, old.Distribution
	}
	if now != nil {
		ns, is = now.Name, now.Distribution
	}
	if was == is {
		return
	}
	touched.labels = x.localityUsage.count(is, 1) || touched.labels
	touched.labels = x.localityUsage.count(was, -1) || touched.labels
	x.localityUsage.namespaces[ns] = is
	if is == model.DistributionUnset {
		delete(x.localityUsage.namespaces, ns)
	}
	for host, list := range x.services {
		for _, svc := range list {
			if svc.Namespace == ns && svc.Distribution == model.DistributionUnset {
				touched.facts.add(serviceFact(host))
				touched.services = append(touched.services, svc)
			}
		}
	}
}
