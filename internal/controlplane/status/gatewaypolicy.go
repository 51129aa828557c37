package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// policy judges a BackendTLSPolicy for the Gateways whose routes lead to its targets, and for the targets,
// which sidecars call.
func (w *gatewayWorld) policy(k model.Key, o gatewayObject) *judgement {
	if o.Policy.Ignored {
		return ignoredPolicy(o)
	}
	taken, resolved := w.valid(o)
	gateways, services := map[model.Key]condition{}, []parentConditions(nil)
	for i := range o.Policy.Targets {
		t := &o.Policy.Targets[i]
		if !t.IsOfMesh() {
			continue
		}
		on := w.target(k, t, taken)
		services = append(services, parentConditions{t, gatewayapi.ControllerMesh, []condition{on, resolved}})
		for _, g := range w.leadingTo(t) {
			if !gateways[g].ok { // in force for at least one target
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

// ignoredPolicy is the judgement of a policy that its owner excludes from the mesh, with Istio's reason.
func ignoredPolicy(o gatewayObject) *judgement {
	out := &judgement{generation: o.generation, policy: &routeConditions{}}
	ignored := condition{typeAccepted, false, "IgnoredByIstio", gatewayapi.AnnotationIgnorePolicy + " is true: the policy has no effect on proxies of the mesh"}
	for i := range o.Policy.Targets {
		out.policy.parents = append(out.policy.parents, parentConditions{&o.Policy.Targets[i], gatewayapi.ControllerMesh, []condition{ignored}})
	}
	return out
}

func gatewayRef(k model.Key) json.RawMessage {
	out, _ := json.Marshal(map[string]string{"group": gatewayapi.Group, "kind": "Gateway", "namespace": k.Namespace, "name": k.Name}) // strings can always be encoded
	return out
}

// valid reports whether a policy is valid, and whether all its references have CAs.
func (w *gatewayWorld) valid(o gatewayObject) (taken, resolved condition) {
	wrong, good := &complaints{}, 0
	for i := range o.Policy.Certificates {
		ref := &o.Policy.Certificates[i]
		found, _ := w.snap.Get(model.Key{Kind: model.KindConfigMap, Namespace: ref.Namespace, Name: ref.Name}).(*model.Secret)
		switch {
		case !ref.IsConfigMap():
			wrong.add("InvalidKind", ref.Field, "%s: use a ConfigMap", ref.KindText())
		case found != nil && found.CAProblem != "": // nil: not read yet
			wrong.add("InvalidCACertificateRef", ref.Field, "ConfigMap %s: cannot be used: %s", ref.Name, found.CAProblem)
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
		taken = condition{typeAccepted, false, "NoValidCACertificate", "connections fail: no CA certificate is valid; " + shorten(wrong.texts)}
	}
	return taken, resolved
}

// target judges a policy for one of its targets.
func (w *gatewayWorld) target(k model.Key, t *gatewayapi.ParentRef, taken condition) condition {
	s, at, reason, message := w.service(&t.ObjectRef), model.BackendTarget{Port: t.Section}, "", ""
	if t.IsServiceEntry() {
		s, at.Entry = w.entry(&t.ObjectRef), t.Name
	} else if s != nil {
		at.Host = s.Hostname
	}
	switch {
	case !taken.ok:
		return taken
	case s == nil:
		reason, message = "TargetNotFound", fmt.Sprintf("%s %s: not found", t.Kind, t.Name)
	case t.Section != "" && !slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Name == t.Section }):
		reason, message = "TargetNotFound", fmt.Sprintf("%s %s: no port with the name %s", t.Kind, t.Name, t.Section)
	default:
		if first := w.policies[policyTarget{k.Namespace, at}]; first != nil && first.Key != k {
			reason, message = "Conflicted", fmt.Sprintf("the older %s has the same target %s", first.Key, t.Name)
		}
	}
	if reason != "" {
		return condition{typeAccepted, false, reason, message}
	}
	return taken
}

// leadingTo returns the Gateways whose routes lead to a target, some of them several times.
func (w *gatewayWorld) leadingTo(t *gatewayapi.ParentRef) (list []model.Key) {
	var hosts []model.Host
	if t.IsServiceEntry() {
		hosts = w.entryHosts(t.Key())
	} else {
		list = slices.Collect(maps.Keys(w.reached[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}]))
		if s := w.service(&t.ObjectRef); s != nil {
			hosts = []model.Host{s.Hostname}
		}
	}
	for host, gateways := range w.reachedHosts {
		if slices.ContainsFunc(hosts, func(h model.Host) bool { return h.Matches(host) }) {
			list = slices.AppendSeq(list, maps.Keys(gateways))
		}
	}
	return list
}

// reach records the Services and hosts that an attached route leads to.
func (w *gatewayWorld) reach(route model.Key, r *gatewayapi.RouteRef, gateway model.Key) {
	for i := range r.Backends {
		ref := &r.Backends[i]
		if ref.IsHostname() { // needs no grant
			add(w.reachedHosts, model.Host(strings.ToLower(ref.Name)), gateway)
			continue
		}
		if !ref.IsService() || !w.granted(model.GrantFrom{Kind: string(route.Kind), Namespace: route.Namespace}, ref) {
			continue
		}
		add(w.reached, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, gateway)
	}
}

func add[K comparable](to map[K]map[model.Key]bool, at K, gateway model.Key) {
	if to[at] == nil {
		to[at] = map[model.Key]bool{}
	}
	to[at][gateway] = true
}

// readPolicies finds the effective policy for each target: the oldest.
func (w *gatewayWorld) readPolicies() {
	for o := range w.snap.All(model.KindBackendTLSPolicy) {
		p, ok := o.(*model.BackendTLSPolicy)
		if !ok {
			continue
		}
		for _, t := range p.Targets {
			at := policyTarget{p.Namespace, t}
			if first := w.policies[at]; first == nil || model.Older(p, first) {
				w.policies[at] = p
			}
		}
	}
}

// ancestors returns those of other controllers unchanged, and ours as far as they fit.
func (d *statusBuilder) ancestors(have []map[string]any) []any {
	others := 0
	for _, a := range have {
		if !d.made(a, ancestorRef) {
			others++
		}
	}
	list := d.policy.parents
	return d.referring(have, list[:min(len(list), max(maxAncestors-others, 0))], ancestorRef)
}

// maxAncestors is the limit of the API.
const maxAncestors = 16
