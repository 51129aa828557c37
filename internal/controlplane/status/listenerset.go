package status

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

func listenerOf(k model.Key, listener string) listenerKey {
	return listenerKey{(&model.Gateway{Meta: model.Meta{Key: k}}).FullName(), listener}
}

// readListenerSets finds the ListenerSets of Gateways of ours, and which of their listeners have no place. A set without a
// valid version has no listeners.
func (w *gatewayWorld) readListenerSets() {
	for k, o := range w.objects {
		if k.Kind == model.KindListenerSet && o.Gateway != nil {
			w.claims[o.Gateway.Parent] = append(w.claims[o.Gateway.Parent], k)
		}
	}
	for _, list := range w.placedSets() {
		w.addDisplaced(list)
	}
}

// placedSets returns each Gateway of ours that accepts ListenerSets, followed by these sets in the order of their age.
func (w *gatewayWorld) placedSets() map[model.Key][]*model.Gateway {
	var all []*model.Gateway
	for o := range w.snap.All(model.KindListenerSet) {
		if set, ok := o.(*model.Gateway); ok {
			all = append(all, set)
		}
	}
	slices.SortFunc(all, func(a, b *model.Gateway) int { return model.CompareAge(a, b) })
	owners := map[model.Key][]*model.Gateway{}
	for _, set := range all {
		o, parent := w.objects[set.Key], w.objects[set.Parent]
		if o.Refs == nil || parent.Refs == nil || parent.Gateway == nil || !w.accepts(parent.Gateway, set.Parent, set) {
			continue
		}
		if w.sets[set.Parent] == nil {
			owners[set.Parent] = []*model.Gateway{parent.Gateway.Placed(set.Parent)}
		}
		w.sets[set.Parent] = append(w.sets[set.Parent], set.Key)
		owners[set.Parent] = append(owners[set.Parent], o.Gateway.Placed(set.Key))
	}
	return owners
}

// addDisplaced notes the listeners of a Gateway and its sets that have no place.
func (w *gatewayWorld) addDisplaced(list []*model.Gateway) {
	conflicts := model.Displaced(list)
	for _, g := range list {
		for i := range g.Servers {
			if c := conflicts[&g.Servers[i]]; c.Reason != "" {
				w.displaced[listenerKey{g.FullName(), g.Servers[i].Port.Name}] = c
			}
		}
	}
}

// accepts reports whether a Gateway accepts a ListenerSet.
func (w *gatewayWorld) accepts(g *gatewayapi.GatewayRef, k model.Key, set *model.Gateway) bool {
	return g.AsGateway(k).AttachSet(set, func(s *model.LabelSelector) bool { return s.Matches(w.snap.NamespaceLabels(set.Namespace)) })
}

// listenerSets judges the ListenerSets that name a Gateway, and counts those that are attached in the Gateway's status.
func (w *gatewayWorld) listenerSets(gateway model.Key, out map[model.Key]*judgement) {
	attached := 0
	for _, k := range w.claims[gateway] {
		out[k] = w.listenerSet(k, w.objects[k], out[gateway])
		if out[k].conditions[0].ok {
			attached++
		}
	}
	out[gateway].gateway.sets = &attached
}

// listenerSet judges a ListenerSet of a Gateway with a judgement.
func (w *gatewayWorld) listenerSet(k model.Key, o gatewayObject, parent *judgement) *judgement {
	out := &judgement{generation: o.generation, gateway: &gatewayConditions{}}
	taken := accepted(o, "Invalid")
	refuse := func(reason, message string) *judgement {
		out.conditions = []condition{{typeAccepted, false, reason, message}, {typeProgrammed, false, reason, message}}
		return out
	}
	gateway := w.objects[o.Gateway.Parent].Gateway
	switch {
	case !w.accepts(gateway, o.Gateway.Parent, o.Gateway.AsGateway(k)):
		return refuse("NotAllowed", fmt.Sprintf("the Gateway accepts no ListenerSets of namespace %s: change its allowedListeners", k.Namespace))
	case !taken.ok:
		return refuse("Invalid", taken.message)
	case w.snap.Get(o.Gateway.Parent) == nil:
		return refuse("ParentNotAccepted", "the Gateway is not accepted: see its status")
	}
	works := condition{typeProgrammed, true, "Programmed", ""}
	if p := parent.conditions[1]; !p.ok && p.reason != "Invalid" { // its own listeners need not be valid
		works = condition{typeProgrammed, false, "ParentNotProgrammed", p.message}
	}
	if bad, served := w.entries(k, o, works.ok, out); len(bad) > 0 {
		taken.ok, taken.reason = served > 0, "ListenersNotValid"
		taken.message = shorten([]string{fmt.Sprintf("listeners without effect: %v", bad), taken.message})
		if !taken.ok {
			return refuse(taken.reason, taken.message)
		}
	}
	out.conditions = []condition{taken, works}
	return out
}

// entries judges the listeners of a ListenerSet. It returns the names of those without effect, and the number of the others.
func (w *gatewayWorld) entries(k model.Key, o gatewayObject, running bool, out *judgement) (bad []string, served int) {
	conflicts := o.Gateway.Conflicts()
	for i := range o.Gateway.Listeners {
		ref, conflict := &o.Gateway.Listeners[i], conflicts[i]
		if conflict.Reason == "" {
			conflict = w.displaced[listenerOf(k, ref.Name)]
		}
		l := w.listener(k, w.objects[o.Gateway.Parent].Gateway, ref, conflict, running)
		out.gateway.listeners = append(out.gateway.listeners, l)
		if taken, resolved := l.conditions[0], l.conditions[1]; taken.ok && (resolved.ok || resolved.reason == invalidRouteKinds) {
			served++
		} else {
			bad = append(bad, l.name)
		}
	}
	return bad, served
}

// invalidRouteKinds is the reason of a listener that takes other kinds of routes.
const invalidRouteKinds = "InvalidRouteKinds"
