package gatewaydeploy

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// withListenerSets returns the listeners of a Gateway, then those of the ListenerSets that it accepts, the oldest first.
func withListenerSets(snap *store.Snapshot, g *gateway) []listener {
	out := g.Spec.Listeners
	parent, ok := snap.Get(g.key()).(*model.Gateway)
	if !ok || parent.ListenerSets == nil {
		return out
	}
	var sets []*model.Gateway
	for o := range snap.All(model.KindListenerSet) {
		set, ok := o.(*model.Gateway)
		if ok && parent.AttachSet(set, func(s *model.LabelSelector) bool { return s.Matches(snap.NamespaceLabels(set.Namespace)) }) {
			sets = append(sets, set)
		}
	}
	slices.SortFunc(sets, func(a, b *model.Gateway) int { return model.CompareAge(a, b) })
	out = slices.Clone(out)
	for _, set := range sets {
		for i := range set.Servers {
			p := &set.Servers[i].Port
			out = append(out, listener{Name: p.Name, Port: int32(p.Number), Protocol: string(p.Protocol)})
		}
	}
	return out
}

// concerned returns the Gateways whose objects a changed object may change, as the store has them now; all: all of them.
func concerned(snap *store.Snapshot, c *store.Change) (which []types.NamespacedName, all bool) {
	switch c.Key.Kind {
	case model.KindMeshConfig, model.KindProxyConfig:
		return nil, true
	case model.KindKubernetesGateway:
		return []types.NamespacedName{{Namespace: c.Key.Namespace, Name: c.Key.Name}}, false // its watch may have been earlier than the store
	case model.KindListenerSet:
		for _, o := range []model.Object{c.Old, c.New} {
			if set, ok := o.(*model.Gateway); ok {
				which = append(which, types.NamespacedName{Namespace: set.Parent.Namespace, Name: set.Parent.Name})
			}
		}
	case model.KindNamespace: // its labels may decide whether it belongs to the mesh, and which ListenerSets a Gateway accepts
		for o := range snap.All(model.KindKubernetesGateway) {
			if g, ok := o.(*model.Gateway); ok && (g.Namespace == c.Key.Name || g.ListenerSets != nil && g.ListenerSets.Selector != nil) {
				which = append(which, types.NamespacedName{Namespace: g.Namespace, Name: g.Name})
			}
		}
	}
	return which, false
}
