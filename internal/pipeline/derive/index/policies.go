package index

import (
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// policyKey is where an object that selects workloads is found: under the first label of its selector, so that a change
// concerns only workloads that have this label.
type policyKey struct {
	kind      model.Kind
	namespace string
	pair      string // "key=value"; empty: all workloads of the namespace
}

// keysOfPolicy are where an object is found, one key for each of its selectors. Keys of Gateways and ListenerSets have no
// namespace, because these may select gateways of all namespaces.
func keysOfPolicy(o model.Selecting) []policyKey {
	m, out := o.Metadata(), []policyKey(nil)
	ns := m.Namespace
	switch m.Kind {
	case model.KindGateway, model.KindKubernetesGateway, model.KindListenerSet, model.KindIngress:
		ns = ""
	}
	for _, labels := range model.Selectors(o) {
		k := policyKey{kind: m.Kind, namespace: ns}
		if len(labels) > 0 {
			first := slices.Min(slices.Collect(maps.Keys(labels)))
			k.pair = first + "=" + labels[first]
		}
		out = append(out, k)
	}
	return out
}

// policyFact is named "Kind/namespace/pair".
func policyFact(k policyKey) Fact {
	return Fact{string(k.kind) + "/" + k.namespace + "/" + k.pair, factPolicy}
}

// replacePolicy takes any object that selects workloads.
func (x *Index) replacePolicy(old, now model.Object, touched *Touched) {
	was, _ := old.(model.Selecting)
	is, _ := now.(model.Selecting)
	if was != nil {
		for _, k := range keysOfPolicy(was) {
			unlist(x.policies, k, was)
			touched.Facts.add(policyFact(k))
		}
	}
	if is != nil {
		for _, k := range keysOfPolicy(is) {
			enlist(x.policies, k, is)
			touched.Facts.add(policyFact(k))
		}
		touched.labels = x.countPolicy(is, 1) || touched.labels
	}
	if was != nil {
		touched.labels = x.countPolicy(was, -1) || touched.labels
	}
}

// countPolicy reports whether the set of labels that make groups differ has changed.
func (x *Index) countPolicy(o model.Selecting, by int) bool {
	changed := false
	for _, labels := range model.Selectors(o) {
		changed = o.ShapesOutbound() && x.labels.add(labels, by) || changed
		changed = x.countTopology(by, func(u labelUse) { u.add(labels, 1) }) || changed
	}
	return changed
}

// Policies lists the objects of a kind that select the clients: those of the root namespace, then those of the clients'
// namespace, in each the oldest first. An object of the root namespace that targets a Gateway counts only there.
func Policies[T model.Selecting](r *Reader, kind model.Kind) []T {
	return policiesFor[T](r, kind, r.Key.Namespace, r.Labels)
}

func policiesFor[T model.Selecting](r *Reader, kind model.Kind, ns string, labels map[string]string) []T {
	root := r.Mesh().RootNamespace
	all := appendPolicies[T](nil, r, kind, root, labels)
	if ns != root {
		all = appendPolicies(all, r, kind, ns, labels)
	}
	var out []T
	for _, o := range all {
		if model.IsFor(o, ns, labels, root) {
			out = append(out, o)
		}
	}
	model.SortPolicies(out, root)
	return out
}

// appendPolicies appends those of one namespace.
func appendPolicies[T model.Selecting](out []T, r *Reader, kind model.Kind, ns string, labels map[string]string) []T {
	from := len(out)
	take := func(pair string) {
		k := policyKey{kind, ns, pair}
		r.facts.add(policyFact(k))
		for _, o := range r.index.policies[k] {
			if model.Selects(o, labels) {
				out = append(out, o.(T))
			}
		}
	}
	take("")
	for k, v := range labels {
		take(k + "=" + v)
	}
	slices.SortFunc(out[from:], func(a, b T) int { return model.CompareAge(a, b) })
	return out
}

// Gateways lists the Gateways that select the clients: Istio's, then those that Ingresses are, then those of the Gateway
// API, in each the oldest first.
func (r *Reader) Gateways() []*model.Gateway {
	kubernetes := appendPolicies[*model.Gateway](nil, r, model.KindKubernetesGateway, "", r.Labels)
	deployed := slices.ContainsFunc(kubernetes, func(g *model.Gateway) bool { return g.Deployed && g.Namespace == r.Key.Namespace })
	list := appendPolicies[*model.Gateway](nil, r, model.KindGateway, "", r.Labels)
	list = appendPolicies(list, r, model.KindIngress, "", r.Labels)
	if mesh := r.Mesh(); mesh.ScopeGatewayToNamespace || deployed && mesh.StrictGatewayMerging {
		list = slices.DeleteFunc(list, func(g *model.Gateway) bool { return r.Key.Namespace != gatewayNamespace(g, mesh) })
	}
	return append(list, kubernetes...)
}

// gatewayNamespace is the namespace that a Gateway belongs to: as in Istio an Ingress, which is for one router of the mesh,
// belongs to the root namespace.
func gatewayNamespace(g *model.Gateway, mesh *model.Mesh) string {
	if g.Kind == model.KindIngress {
		return mesh.RootNamespace
	}
	return g.Namespace
}

// ListenerSets lists the ListenerSets of Gateways that may select the clients, the oldest first.
func (r *Reader) ListenerSets() []*model.Gateway {
	return appendPolicies[*model.Gateway](nil, r, model.KindListenerSet, "", r.Labels)
}

// Granted reports whether a ReferenceGrant lets objects refer to an object of another namespace. The grant becomes an
// origin.
func (r *Reader) Granted(from model.GrantFrom, to model.Key) bool {
	list := appendPolicies[*model.ReferenceGrant](nil, r, model.KindReferenceGrant, to.Namespace, nil)
	i := slices.IndexFunc(list, func(g *model.ReferenceGrant) bool {
		return g.Allows(from, model.GrantTo{Kind: string(to.Kind), Name: to.Name})
	})
	if i >= 0 {
		r.Use(list[i])
	}
	return i >= 0
}

// PeerTLS is what the sidecars of the clients accept. The policies become origins.
func (r *Reader) PeerTLS() *model.PeerTLS {
	list := r.peerPolicies(r.Key.Namespace, r.Labels)
	for _, p := range list {
		r.Use(p)
	}
	return model.EffectivePeerTLS(r.Mesh().RootNamespace, list)
}

// peerPolicies are those that count for a workload.
func (r *Reader) peerPolicies(ns string, labels map[string]string) []*model.PeerAuthentication {
	all := policiesFor[*model.PeerAuthentication](r, model.KindPeerAuthentication, ns, labels)
	return model.EffectivePeerAuthentications(r.Mesh().RootNamespace, all)
}

// customFact is that of CustomPolicies, for one namespace.
func customFact(ns string) Fact {
	return policyFact(policyKey{model.KindAuthorizationPolicy, ns, "CUSTOM"})
}

// replaceCustom takes an AuthorizationPolicy.
func (x *Index) replaceCustom(old, now *model.AuthorizationPolicy, touched *Touched) {
	if isCustom(old) {
		take(x.custom, old.Namespace, old.Key)
		touched.Facts.add(customFact(old.Namespace))
	}
	if isCustom(now) {
		insert(x.custom, now.Namespace, now.Key, now)
		touched.Facts.add(customFact(now.Namespace))
	}
}

// isCustom reports whether a policy names an external authorizer.
func isCustom(p *model.AuthorizationPolicy) bool {
	return p != nil && p.Action == model.AuthorizeCustom
}

// CustomPolicies lists the policies of action AuthorizeCustom that select the clients, by key. Outbound groups of sidecars
// do not have the labels that decide it: for them it lists those that may select sidecars of their namespace.
func (r *Reader) CustomPolicies() []*model.AuthorizationPolicy {
	root := r.Mesh().RootNamespace
	counts := func(p *model.AuthorizationPolicy) bool { return !p.Targeted }
	if r.Key.IsRouter() {
		counts = func(p *model.AuthorizationPolicy) bool { return model.IsFor(p, r.Key.Namespace, r.Labels, root) }
	}
	var out []*model.AuthorizationPolicy
	for _, ns := range slices.Compact([]string{root, r.Key.Namespace}) {
		r.facts.add(customFact(ns))
		for _, p := range r.index.custom[ns] {
			if counts(p) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b *model.AuthorizationPolicy) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// permissive is what workloads accept if no policy switches mutual TLS off. Callers do not distinguish other modes.
var permissive = &model.PeerTLS{Mode: model.MTLSPermissive}

// accepts is what the sidecar of a workload accepts, as far as callers must know. It adds the policies that decide it.
func (x *Index) accepts(ns string, labels map[string]string, policies *model.OriginList) *model.PeerTLS {
	if x.disabling == 0 {
		return permissive
	}
	list := x.NewReader(nil).peerPolicies(ns, labels)
	if slices.ContainsFunc(list, (*model.PeerAuthentication).Disables) { // else the result is like permissive
		for _, p := range list {
			policies.Add(p.Key)
		}
	}
	return model.EffectivePeerTLS(x.mesh.RootNamespace, list)
}

// replacePeerPolicy takes a PeerAuthentication. If some policy switches mutual TLS off, before the change or after it, the
// endpoints of the policy's namespace may differ.
func (x *Index) replacePeerPolicy(old, now model.Object, touched *Touched) {
	before := x.disabling
	x.countDisabling(old, -1)
	x.countDisabling(now, 1)
	x.replacePolicy(old, now, touched)
	if before+x.disabling == 0 {
		return
	}
	for _, o := range []model.Object{old, now} {
		if o != nil {
			x.touchEndpoints(o.Metadata().Namespace, touched)
		}
	}
}

func (x *Index) countDisabling(o model.Object, by int) {
	if p := as[*model.PeerAuthentication](o); p != nil && p.Disables() {
		x.disabling += by
	}
}

// touchEndpoints touches the services of a namespace, or of all namespaces for the root namespace.
func (x *Index) touchEndpoints(ns string, touched *Touched) {
	for _, list := range x.services {
		for _, s := range list {
			if s.Namespace == ns || ns == x.mesh.RootNamespace {
				x.endpoints.touch(s, touched)
				x.endpoints.touchMembers(s, touched)
			}
		}
	}
}
