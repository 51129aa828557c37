package gatewayapi

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// ListenerSet decodes a ListenerSet. Whether its Gateway is one of the mesh, and accepts it, is decided by
// model.Gateway.AttachSet. It returns nil for a parent of another kind.
func ListenerSet(in convert.Cluster, o *gatewayv1.ListenerSet) (*model.Gateway, problem.List) {
	c := start(in, model.KindListenerSet, &o.ObjectMeta)
	refs := listenerSetRefs(o)
	if refs.Parent.Name == "" {
		c.Warnf(code.NoEffect, problem.Path("spec.parentRef"), "is not a Gateway, so the ListenerSet has no effect")
		return nil, c.Problems
	}
	c.Routers = refs.Parent.Namespace
	g := &model.Gateway{
		Meta: c.Meta, OwnNamespace: true, Selector: map[string]string{model.LabelGatewayName: refs.Parent.Name}, Parent: refs.Parent,
	}
	c.listeners(g, refs, listenersOf(o))
	return g, c.Problems
}

// listenersOf are the entries as listeners of a Gateway.
func listenersOf(o *gatewayv1.ListenerSet) []gatewayv1.Listener {
	out := make([]gatewayv1.Listener, 0, len(o.Spec.Listeners))
	for _, l := range o.Spec.Listeners {
		out = append(out, gatewayv1.Listener(l))
	}
	return out
}

func listenerSetRefs(o *gatewayv1.ListenerSet) *GatewayRef {
	out, p := &GatewayRef{}, &o.Spec.ParentRef
	ref := refOf("spec.parentRef", o.Namespace, Group, "Gateway", p.Group, p.Kind, p.Namespace, p.Name)
	if ref.IsGateway() {
		out.Parent = ref.Key()
	}
	out.addListeners(o.Namespace, listenersOf(o))
	return out
}
