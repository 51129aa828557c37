package analyze

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// policyTargets reports target Gateways that do not exist, unless a router has their name. Decoding the policy
// reports a policy without any target.
func (c securityChecks) policyTargets(o model.Selecting) {
	t, ok := o.(model.Targeting)
	if !ok {
		return
	}
	names, _ := t.TargetGateways()
	ns := o.Metadata().Namespace
	for _, name := range names {
		router := func(w *model.Workload) bool { return w.Labels[model.LabelGatewayName] == name }
		if c.gateways.api[model.Key{Kind: model.KindKubernetesGateway, Namespace: ns, Name: name}] != nil || slices.ContainsFunc(c.workloads[ns], router) {
			continue
		}
		c.warnf(o, "spec.targetRefs", "namespace %s has no Gateway %s of a class that is served here, so nothing is done for it; write it, or correct the name", ns, name)
	}
}
