package kube

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// addGateways adds the Secrets that routers need: those of the Gateways that select them, in the routers' namespace. If the
// Gateway is in that namespace too, its author could also mount the Secret into the router. A Gateway of another namespace
// gives a router only what the router's service account may read. Secrets of other namespaces need a ReferenceGrant for
// the Gateway. Without a router there is no reader of the key, but the Gateway's status reports whether the Secret is
// valid.
func addGateways(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for _, kind := range []model.Kind{model.KindGateway, model.KindKubernetesGateway} {
		for o := range snap.All(kind) {
			addGateway(snap, o, into)
		}
	}
}

func addGateway(snap *store.Snapshot, o model.Object, into map[model.Key]*secretWatch) {
	g, ok := o.(*model.Gateway)
	if !ok || len(g.Credentials(g.Namespace))+len(g.GrantsNeeded()) == 0 {
		return
	}
	granted := grantedTo(snap, g)
	served := false
	for w := range snap.All(model.KindPod) {
		if pod, ok := w.(*model.Workload); ok && servesGateway(pod, g) {
			addRouter(g, pod, granted, into)
			served = true
		}
	}
	if served {
		return
	}
	for _, need := range g.Credentials(g.Namespace) {
		wantSecret(into, model.NeededSecret{Key: need.Key})
	}
	for _, key := range granted {
		wantSecret(into, model.NeededSecret{Key: key})
	}
}

// grantedTo returns the Secrets of other namespaces to which a Gateway may refer.
func grantedTo(snap *store.Snapshot, g *model.Gateway) []model.Key {
	return slices.DeleteFunc(g.GrantsNeeded(), func(k model.Key) bool {
		for o := range snap.All(model.KindReferenceGrant) {
			if grant, ok := o.(*model.ReferenceGrant); ok && grant.Namespace == k.Namespace &&
				grant.Allows(g.GrantFrom(), model.GrantTo{Kind: string(k.Kind), Name: k.Name}) {
				return false
			}
		}
		return true
	})
}

// servesGateway reports whether a Pod may be a router of a Gateway. A Gateway without a selector applies to all
// routers; it counts only in its own namespace, because its routers are unknown.
func servesGateway(pod *model.Workload, g *model.Gateway) bool {
	if len(g.Selector) == 0 || g.OwnNamespace && pod.Namespace != g.Namespace {
		return len(g.Selector) == 0 && pod.Namespace == g.Namespace
	}
	return model.SelectorMatches(g.Selector, pod.Labels)
}

func addRouter(g *model.Gateway, pod *model.Workload, granted []model.Key, into map[model.Key]*secretWatch) {
	for _, key := range granted { // the author of the grant trusts the Gateway's namespace
		w, account := wantSecret(into, model.NeededSecret{Key: key, PrivateKey: true}), pod.Namespace+"/"+pod.Account()
		w.readers[account], w.trusted[account] = true, true
	}
	for _, need := range g.Credentials(pod.Namespace) {
		w := wantSecret(into, need)
		if !need.PrivateKey {
			continue
		}
		w.readers[pod.Account()] = true
		if len(g.Selector) > 0 && g.Namespace == pod.Namespace {
			w.trusted[pod.Account()] = true
		}
	}
}
