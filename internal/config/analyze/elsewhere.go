package analyze

import (
	"slices"
	"strings"

	"istio.io/api/annotation"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Files are often one part of a mesh: the routes of a service without the service, or a gateway without what it leads to.
// What such a part does not have may be in other files. So a missing object is a problem only if the files have others of its
// kind in its namespace, or one whose name is almost the same. Otherwise it is an info. In a cluster nothing is elsewhere.

// serviceElsewhere reports whether the services of a host may be in other files. Services of gateways are no evidence: they
// are often installed separately.
func (c *checker) serviceElsewhere(h model.Host) bool {
	if !c.onlyFiles {
		return false
	}
	ns, inCluster := c.namespaceOf(h)
	return !slices.ContainsFunc(c.services, func(s *model.Service) bool {
		return (!inCluster || s.Namespace == ns) && !c.isGatewayService(s)
	})
}

// brokenService reports whether the Service of a host has errors.
func (c *checker) brokenService(h model.Host) bool {
	ns, inCluster := c.namespaceOf(h)
	name, _, _ := strings.Cut(string(h), ".")
	return inCluster && c.broken[model.Key{Kind: model.KindService, Namespace: ns, Name: name}]
}

// namespaceOf returns the namespace in the host of a Service; inCluster is false for other hosts.
func (c *checker) namespaceOf(h model.Host) (ns string, inCluster bool) {
	name, inCluster := strings.CutSuffix(string(h), ".svc."+c.domain)
	_, ns, dot := strings.Cut(name, ".")
	return ns, inCluster && dot
}

// isGatewayService reports whether a Service leads to the routers of a gateway.
func (c *checker) isGatewayService(s *model.Service) bool {
	if !s.IsKubernetes() || len(s.Selector) == 0 {
		return false
	}
	if s.Selector[model.LabelGatewayName] != "" {
		return true
	}
	if slices.ContainsFunc(c.gateways.list, func(g *model.Gateway) bool {
		selector := model.WithoutTopology(g.Selector)
		return len(selector) > 0 && model.SelectorMatches(selector, s.Selector)
	}) {
		return true
	}
	return slices.ContainsFunc(c.workloads[s.Namespace], func(w *model.Workload) bool {
		return model.SelectorMatches(s.Selector, w.Labels) && isRouter(w)
	})
}

// isRouter reports whether a workload is an Envoy of a gateway.
func isRouter(w *model.Workload) bool {
	return w.Labels[model.LabelGatewayName] != "" || slices.Contains(strings.Split(w.Annotations[annotation.InjectTemplates.Name], ","), "gateway")
}

// workloadsKnown reports whether the workloads of a namespace are among the objects.
func (c *checker) workloadsKnown(ns string) bool {
	return slices.ContainsFunc(c.workloads[ns], func(w *model.Workload) bool { return !c.onlyFiles || !isRouter(w) })
}

// mention is an object that another object names.
type mention struct {
	by   model.Key
	what string
}

// elsewhere reports, once for each object that names it, that something may be in other files.
func (c *checker) elsewhere(o model.Key, field, what, siblings string) {
	m := mention{o, what}
	if c.mentioned[m] {
		return
	}
	if c.mentioned == nil {
		c.mentioned = map[mention]bool{}
	}
	c.mentioned[m] = true
	c.report(code.NotAmongObjects, problem.SeverityInfo, o, field, "%s: not found in these files, nor are %s: check the name, or pass the files that define them", what, siblings)
}

// hostElsewhere is elsewhere for a host.
func (c *checker) hostElsewhere(o model.Key, field string, h model.Host) {
	if ns, inCluster := c.namespaceOf(h); inCluster {
		c.elsewhere(o, field, string(h), "other applications of namespace "+ns)
		return
	}
	c.elsewhere(o, field, string(h), "other services")
}
