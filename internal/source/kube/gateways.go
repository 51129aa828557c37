package kube

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// addGateways adds the Secrets that routers need: those of the Gateways that select them, in the
// routers' namespace. Where the Gateway is of that namespace, too, whoever wrote it might have
// mounted the Secret into the router; a Gateway of elsewhere gives a router only what the API
// server says that its service account may read. Where there is no router yet, nobody is to have the key, and
// whoever wrote the Gateway is told whether the Secret can be used.
func addGateways(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for _, kind := range []model.Kind{model.KindGateway, model.KindKubernetesGateway} {
		for o := range snap.All(kind) {
			addGateway(snap, o, into)
		}
	}
}

func addGateway(snap *store.Snapshot, o model.Object, into map[model.Key]*secretWatch) {
	g, ok := o.(*model.Gateway)
	if !ok || len(g.Credentials(g.Namespace)) == 0 {
		return
	}
	served := false
	for w := range snap.All(model.KindPod) {
		if pod, ok := w.(*model.Workload); ok && servesGateway(pod, g) {
			addRouter(g, pod, into)
			served = true
		}
	}
	if served {
		return
	}
	for _, need := range g.Credentials(g.Namespace) {
		wantSecret(into, model.NeededSecret{Key: need.Key})
	}
}

// servesGateway tells whether a Pod may be a router of a Gateway. One without a selector is for
// all routers, of which nobody knows who they are: it counts in its own namespace alone.
func servesGateway(pod *model.Workload, g *model.Gateway) bool {
	if len(g.Selector) == 0 || g.OwnNamespace && pod.Namespace != g.Namespace {
		return len(g.Selector) == 0 && pod.Namespace == g.Namespace
	}
	return model.SelectorMatches(g.Selector, pod.Labels)
}

func addRouter(g *model.Gateway, pod *model.Workload, into map[model.Key]*secretWatch) {
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
