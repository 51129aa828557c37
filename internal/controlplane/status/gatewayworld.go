package status

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// gatewayObject is an object of the Gateway API as the API server has it.
type gatewayObject struct {
	*gatewayapi.Refs
	generation int64
	problems   problem.List
	inForce    bool        // an earlier version is in force
	partial    bool        // a route whose valid rules are used
	deployment *Deployment // of a Gateway; nil: this control plane does not deploy it
	undecided  bool        // it is not known yet whether it deploys the Gateway
}

// condition is a wanted condition.
type condition struct {
	kind    string
	ok      bool
	reason  string
	message string
}

// judgement is the wanted status of a Gateway API object, for one generation. Parts that it does not have
// are nil.
type judgement struct {
	generation int64
	conditions []condition
	gateway    *gatewayConditions // of a ListenerSet too
	route      *routeConditions
	policy     *routeConditions // its ancestors
	features   []string         // of a GatewayClass
}

// Types of conditions.
const (
	typeAccepted     = "Accepted"
	typeProgrammed   = "Programmed"
	typeResolvedRefs = "ResolvedRefs"
	typeConflicted   = "Conflicted"
	// typePartiallyInvalid and typeInsecureFrontend exist only if they are true.
	typePartiallyInvalid = "PartiallyInvalid"
	typeInsecureFrontend = "InsecureFrontendValidationMode"
)

// gatewayWorld has the input of judgements: Gateway API objects as the API server has them, and other
// objects as the mesh uses them.
type gatewayWorld struct {
	snap    *store.Snapshot
	objects map[model.Key]gatewayObject
	grants  map[string][]*model.ReferenceGrant         // by namespace
	routers map[types.NamespacedName][]*model.Workload // by Gateway
	// services are the Services with selectors, by namespace.
	services map[string][]*model.Service
	// streams are the TCPRoutes that sidecars use, with the hosts of ServiceEntries.
	streams []*model.VirtualService
	// attached counts routes by listener.
	attached map[listenerKey]int
	// reached are the Gateways whose routes lead to a Service, and reachedHosts those whose routes name a host instead.
	reached      map[types.NamespacedName]map[model.Key]bool
	reachedHosts map[model.Host]map[model.Key]bool
	// policies are the effective BackendTLSPolicies, by target.
	policies map[policyTarget]*model.BackendTLSPolicy
	// sets are the ListenerSets that belong to a Gateway, the oldest first.
	sets map[model.Key][]model.Key
	// claims are all ListenerSets that name a Gateway.
	claims map[model.Key][]model.Key
	// displaced are their listeners for which an earlier listener leaves no place.
	displaced map[listenerKey]model.ServerConflict
}

// listenerKey is a listener of a Gateway or ListenerSet (FullName).
type listenerKey struct{ gateway, listener string }

// judgeGateways returns the wanted statuses of all Gateway API objects.
func judgeGateways(snap *store.Snapshot, objects map[model.Key]gatewayObject) map[model.Key]*judgement {
	w := &gatewayWorld{
		snap: snap, objects: objects, grants: map[string][]*model.ReferenceGrant{}, routers: map[types.NamespacedName][]*model.Workload{},
		services: map[string][]*model.Service{}, attached: map[listenerKey]int{},
		reached: map[types.NamespacedName]map[model.Key]bool{}, reachedHosts: map[model.Host]map[model.Key]bool{},
		policies: map[policyTarget]*model.BackendTLSPolicy{},
		sets:     map[model.Key][]model.Key{}, claims: map[model.Key][]model.Key{}, displaced: map[listenerKey]model.ServerConflict{},
	}
	w.read()
	out := map[model.Key]*judgement{}
	for k, o := range objects {
		switch {
		case o.Route != nil:
			out[k] = &judgement{generation: o.generation, route: w.route(k, o)}
		case o.Class != nil:
			out[k] = class(o)
		}
	}
	for k, o := range objects { // after the routes have been counted
		switch {
		case o.undecided:
		case o.Gateway != nil && k.Kind == model.KindKubernetesGateway:
			out[k] = w.gateway(k, o)
			w.listenerSets(k, out)
		case o.Policy != nil:
			out[k] = w.policy(k, o)
		}
	}
	return out
}

func (w *gatewayWorld) read() {
	w.readPolicies()
	w.readListenerSets()
	for k, o := range w.objects {
		if v, ok := w.snap.Get(k).(*model.VirtualService); ok && o.Route != nil && k.Kind == model.KindTCPRoute && v.InMesh() {
			w.streams = append(w.streams, v.InEntries(w.entryHosts))
		}
	}
	for o := range w.snap.All(model.KindReferenceGrant) {
		if g, ok := o.(*model.ReferenceGrant); ok {
			w.grants[g.Namespace] = append(w.grants[g.Namespace], g)
		}
	}
	for o := range w.snap.All(model.KindService) {
		if s, ok := o.(*model.Service); ok && len(s.Selector) > 0 {
			w.services[s.Namespace] = append(w.services[s.Namespace], s)
		}
	}
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range w.snap.All(kind) {
			if r, ok := o.(*model.Workload); ok && r.Labels[model.LabelGatewayName] != "" {
				n := types.NamespacedName{Namespace: r.Namespace, Name: r.Labels[model.LabelGatewayName]}
				w.routers[n] = append(w.routers[n], r)
			}
		}
	}
}

func (w *gatewayWorld) entryHosts(k model.Key) []model.Host {
	if e, ok := w.snap.Get(k).(*model.ServiceEntry); ok {
		return e.Hosts
	}
	return nil
}

// granted reports whether objects of a kind and namespace may refer to another one.
func (w *gatewayWorld) granted(from model.GrantFrom, to *gatewayapi.ObjectRef) bool {
	return from.Namespace == to.Namespace || slices.ContainsFunc(w.grants[to.Namespace], func(g *model.ReferenceGrant) bool {
		return g.Allows(from, model.GrantTo{Kind: to.Kind, Name: to.Name})
	})
}

// service returns the Service that a reference names; nil: there is none.
func (w *gatewayWorld) service(r *gatewayapi.ObjectRef) *model.Service {
	s, _ := w.snap.Get(model.Key{Kind: model.KindService, Namespace: r.Namespace, Name: r.Name}).(*model.Service)
	return s
}

// entry is a service of a ServiceEntry, whose hosts have the same ports; nil: there is none.
func (w *gatewayWorld) entry(r *gatewayapi.ObjectRef) *model.Service {
	e, _ := w.snap.Get(model.Key{Kind: model.KindServiceEntry, Namespace: r.Namespace, Name: r.Name}).(*model.ServiceEntry)
	if e == nil {
		return nil
	}
	if list := e.Services(); len(list) > 0 {
		return list[0]
	}
	return nil
}

// policyTarget is a target of BackendTLSPolicies of a namespace.
type policyTarget struct {
	namespace string
	target    model.BackendTarget
}

// accepted returns the condition of that type, with warnings. It is false if the object cannot be decoded.
func accepted(o gatewayObject, invalid string) condition {
	out := condition{typeAccepted, true, "Accepted", problemText(o.problems)}
	if o.problems.HasErrors() && !o.partial && !o.fallsBack() {
		out.ok, out.reason = false, invalid
	}
	return out
}

// fallsBack reports whether it is a route with errors whose last valid version serves.
func (o *gatewayObject) fallsBack() bool {
	return o.Route != nil && o.inForce && o.problems.HasErrors()
}

func problemText(ps problem.List) string {
	var texts []string
	for _, p := range concerning(ps) {
		texts = append(texts, text(p))
	}
	return shorten(texts)
}

// complaints are problems. The first gives the reason.
type complaints struct {
	reason string
	texts  []string
}

func (c *complaints) add(reason, field, format string, args ...any) {
	if c.reason == "" {
		c.reason = reason
	}
	c.texts = append(c.texts, field+": "+fmt.Sprintf(format, args...))
}

// resolved returns the condition that all references resolve, or why not.
func (c *complaints) resolved() condition {
	if c.reason == "" {
		return condition{typeResolvedRefs, true, "ResolvedRefs", ""}
	}
	return condition{typeResolvedRefs, false, c.reason, shorten(c.texts)}
}
