package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// policy judges a BackendTLSPolicy by the Gateways whose routes lead to its targets, and by these, which sidecars call.
func (w *gatewayWorld) policy(k model.Key, o gatewayObject) *judgement {
	taken, resolved := w.believed(o)
	gateways, services := map[model.Key]condition{}, []parentConditions(nil)
	for i := range o.Policy.Targets {
		t := &o.Policy.Targets[i]
		if !t.IsService() {
			continue
		}
		on := w.target(k, t, taken)
		services = append(services, parentConditions{t, gatewayapi.ControllerMesh, []condition{on, resolved}})
		for g := range w.reached[name{t.Namespace, t.Name}] {
			if !gateways[g].ok { // it is in force for one target, at least
				gateways[g] = on
			}
		}
	}
	out := &judgement{generation: o.generation, policy: &routeConditions{}}
	for _, g := range slices.SortedFunc(maps.Keys(gateways), model.Key.Compare) {
		ref := &gatewayapi.ParentRef{Ref: gatewayRef(g)}
		out.policy.parents = append(out.policy.parents, parentConditions{ref, w.objects[g].Gateway.Controller, []condition{gateways[g], resolved}})
	}
	out.policy.parents = append(out.policy.parents, services...)
	return out
}

func gatewayRef(k model.Key) json.RawMessage {
	out, _ := json.Marshal(map[string]string{"group": gatewayapi.Group, "kind": "Gateway", "namespace": k.Namespace, "name": k.Name}) // strings can be written
	return out
}

// believed tells whether a policy can be used as it is, and whether all that it refers to for CAs has some.
func (w *gatewayWorld) believed(o gatewayObject) (taken, resolved condition) {
	wrong, good := &complaints{}, 0
	for i := range o.Policy.Certificates {
		ref := &o.Policy.Certificates[i]
		found, _ := w.snap.Get(model.Key{Kind: model.KindConfigMap, Namespace: ref.Namespace, Name: ref.Name}).(*model.Secret)
		switch {
		case !ref.IsConfigMap():
			wrong.add("InvalidKind", ref.Field, "%s is no ConfigMap", ref.KindText())
		case found != nil && found.CAProblem != "": // nil: nobody has looked for it yet
			wrong.add("InvalidCACertificateRef", ref.Field, "the ConfigMap %s cannot be used: %s", ref.Name, found.CAProblem)
		default:
			good++
		}
	}
	taken, resolved = accepted(o, "Invalid"), wrong.resolved()
	switch known := o.Policy.WellKnown; {
	case !taken.ok:
	case known != "" && known != "System":
		taken.ok, taken.reason = false, "Invalid"
	case known == "" && good == 0:
		taken = condition{typeAccepted, false, "NoValidCACertificate", "no connection is made; " + shorten(wrong.texts)}
	}
	return taken, resolved
}

// target judges a policy by one of its targets.
func (w *gatewayWorld) target(k model.Key, t *gatewayapi.ParentRef, taken condition) condition {
	s, reason, message := w.service(&t.ObjectRef), "", ""
	switch {
	case !taken.ok:
		return taken
	case s == nil:
		reason, message = "TargetNotFound", fmt.Sprintf("there is no Service %s", t.Name)
	case t.Section != "" && !slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Name == t.Section }):
		reason, message = "TargetNotFound", fmt.Sprintf("the Service %s has no port with the name %s", t.Name, t.Section)
	default:
		if first := w.policies[model.BackendTarget{Host: s.Hostname, Port: t.Section}]; first != nil && first.Key != k {
			reason, message = "Conflicted", fmt.Sprintf("the older %s is for %s, too", first.Key, t.Name)
		}
	}
	if reason != "" {
		return condition{typeAccepted, false, reason, message}
	}
	return taken
}

// reach notes that a route that a Gateway has taken leads to Services.
func (w *gatewayWorld) reach(route model.Key, r *gatewayapi.RouteRef, gateway model.Key) {
	for i := range r.Backends {
		ref := &r.Backends[i]
		if !ref.IsService() || !w.granted(model.GrantFrom{Kind: string(route.Kind), Namespace: route.Namespace}, ref) {
			continue
		}
		at := name{ref.Namespace, ref.Name}
		if w.reached[at] == nil {
			w.reached[at] = map[model.Key]bool{}
		}
		w.reached[at][gateway] = true
	}
}

// readPolicies finds the policy that counts for each target: the oldest.
func (w *gatewayWorld) readPolicies() {
	for o := range w.snap.All(model.KindBackendTLSPolicy) {
		p, ok := o.(*model.BackendTLSPolicy)
		if !ok {
			continue
		}
		for _, t := range p.Targets {
			if first := w.policies[t]; first == nil || model.Older(p, first) {
				w.policies[t] = p
			}
		}
	}
}

// ancestors are those of others as they are, and ours, as far as there is room.
func (d *drawing) ancestors(have []map[string]any) []any {
	others := 0
	for _, a := range have {
		if !d.made(a, ancestorRef) {
			others++
		}
	}
	list := d.policy.parents
	return d.referring(have, list[:min(len(list), max(maxAncestors-others, 0))], ancestorRef)
}

// maxAncestors is how many the API takes.
const maxAncestors = 16
