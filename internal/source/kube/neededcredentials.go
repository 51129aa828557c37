package kube

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// wanted returns the Secrets that rules, Sidecars, Gateways and plugins refer to, and the readers of their keys.
func (c *Credentials) wanted() map[model.Key]*secretWatch { return wantedIn(c.Snapshot()) }

// Referenced returns the Secrets and ConfigMaps that a control plane reads from a cluster with these objects.
func Referenced(objects []model.Object) map[model.Key]bool {
	s := store.New()
	events := make([]store.Event, 0, len(objects))
	for _, o := range objects {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	snap, _ := s.Apply(events)
	out := map[model.Key]bool{}
	for k := range wantedIn(snap) {
		out[k] = true
	}
	return out
}

func wantedIn(snap *store.Snapshot) map[model.Key]*secretWatch {
	out := map[model.Key]*secretWatch{}
	for o := range snap.All(model.KindDestinationRule) {
		r, ok := o.(*model.DestinationRule)
		if !ok {
			continue
		}
		for _, need := range r.Credentials() {
			if need.Kind == model.KindSecret && len(r.WorkloadSelector) == 0 {
				continue // no proxy gets it
			}
			if w := wantSecret(out, r.Namespace, need); need.PrivateKey {
				addAccounts(snap, r.Namespace, r.WorkloadSelector, w.readers)
			}
		}
	}
	addBackendTLS(snap, out)
	addSidecars(snap, out)
	addGateways(snap, out)
	addPlugins(snap, out)
	return out
}

// addBackendTLS adds the ConfigMaps with the CAs of backends' certificates.
func addBackendTLS(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for o := range snap.All(model.KindBackendTLSPolicy) {
		if p, ok := o.(*model.BackendTLSPolicy); ok {
			for _, need := range p.Credentials() {
				wantSecret(into, p.Namespace, need)
			}
		}
	}
}

// addSidecars adds the Secrets that workloads need for their own listeners.
func addSidecars(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for o := range snap.All(model.KindSidecar) {
		s, ok := o.(*model.Sidecar)
		if !ok {
			continue
		}
		for _, need := range s.Credentials() {
			if w := wantSecret(into, s.Namespace, need); need.PrivateKey {
				addAccounts(snap, s.Namespace, s.Selector, w.readers)
			}
		}
	}
}

// addPlugins adds the Secrets with credentials for modules of plugins.
func addPlugins(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for o := range snap.All(model.KindWasmPlugin) {
		p, ok := o.(*model.WasmPlugin)
		if !ok {
			continue
		}
		if key, named := p.PullSecretKey(); named {
			w := wantSecret(into, p.Namespace, model.NeededSecret{Key: key, PrivateKey: true})
			for _, selector := range model.Selectors(p) {
				addAccounts(snap, p.Namespace, selector, w.readers)
			}
		}
	}
}

// wantSecret adds a Secret for an object of a namespace, or adds to it. It ignores the ConfigMap with the mesh's configuration, which another watch
// reads.
func wantSecret(into map[model.Key]*secretWatch, author string, need model.NeededSecret) *secretWatch {
	w := into[need.Key]
	if w == nil {
		w = &secretWatch{readers: map[string]bool{}, trusted: map[string]bool{}}
	}
	if !need.IsMeshConfig() {
		into[need.Key] = w
	}
	w.keyAsked = w.keyAsked || need.PrivateKey
	if w.author == "" || author == need.Key.Namespace || w.author != need.Key.Namespace && author < w.author {
		w.author = author
	}
	return w
}

// addAccounts adds the service accounts of the selected workloads of a namespace. Labels of topology do not count: the
// accounts of workloads at other places may read the key, too. Their proxies do not get it, because the object does not
// select them.
func addAccounts(snap *store.Snapshot, namespace string, selector map[string]string, into map[string]bool) {
	selector = model.WithoutTopology(selector)
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range snap.All(kind) {
			w, ok := o.(*model.Workload)
			if ok && w.Namespace == namespace && model.SelectorMatches(selector, w.Labels) {
				into[w.Account()] = true
			}
		}
	}
}

// addGateways adds the Secrets that routers need: those of the Gateways that select them, in the routers' namespace. If the
// Gateway is in that namespace too, its author could also mount the Secret into the router. A Gateway of another namespace
// gives a router only what the router's service account may read. Secrets of other namespaces need a ReferenceGrant for
// the Gateway. Without a router no proxy gets the key, but the Gateway's status reports whether the Secret is valid.
func addGateways(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for _, kind := range []model.Kind{model.KindGateway, model.KindKubernetesGateway, model.KindListenerSet} {
		for o := range snap.All(kind) {
			addGateway(snap, o, into)
		}
	}
	settings := ingressSettings(snap)
	for o := range snap.All(model.KindIngress) {
		i, ok := o.(*model.Ingress)
		if !ok {
			continue
		}
		class, _ := snap.Get(model.Key{Kind: model.KindIngressClass, Name: i.Class}).(*model.IngressClass)
		if settings.Serves(i, class) {
			addGateway(snap, i.Gateway(settings), into)
		}
	}
}

// ingressSettings are those of the mesh's configuration.
func ingressSettings(snap *store.Snapshot) model.IngressSettings {
	for o := range snap.All(model.KindMeshConfig) {
		if m, ok := o.(*model.MeshConfig); ok && m.Ingress != nil {
			return *m.Ingress
		}
	}
	return model.DefaultIngress()
}

func addGateway(snap *store.Snapshot, o model.Object, into map[model.Key]*secretWatch) {
	g, ok := o.(*model.Gateway)
	if !ok || g.Kind == model.KindListenerSet && !attached(snap, g) {
		return
	}
	granted := g.SecretsElsewhere(func(k model.Key) bool { return grantedTo(snap, g, k) })
	if len(granted)+len(g.Credentials(g.Namespace)) == 0 {
		return
	}
	served, selector := false, model.WithoutTopology(g.Selector)
	for w := range snap.All(model.KindPod) {
		if pod, ok := w.(*model.Workload); ok && servesGateway(pod, g, selector) {
			addRouter(g, selector, pod, granted, into)
			served = true
		}
	}
	if served {
		return
	}
	for _, need := range g.Credentials(g.Namespace) {
		wantSecret(into, g.Namespace, model.NeededSecret{Key: need.Key})
	}
	for _, key := range granted {
		wantSecret(into, g.Namespace, model.NeededSecret{Key: key})
	}
}

// attached reports whether the Gateway of a ListenerSet accepts it.
func attached(snap *store.Snapshot, set *model.Gateway) bool {
	parent, ok := snap.Get(set.Parent).(*model.Gateway)
	return ok && parent.AttachSet(set, func(s *model.LabelSelector) bool { return s.Matches(snap.NamespaceLabels(set.Namespace)) })
}

// grantedTo reports whether a Gateway or ListenerSet may refer to a Secret of another namespace.
func grantedTo(snap *store.Snapshot, g *model.Gateway, k model.Key) bool {
	for o := range snap.All(model.KindReferenceGrant) {
		if grant, ok := o.(*model.ReferenceGrant); ok && grant.Namespace == k.Namespace &&
			grant.Allows(g.GrantFrom(), model.GrantTo{Kind: string(k.Kind), Name: k.Name}) {
			return true
		}
	}
	return false
}

// servesGateway reports whether a Pod may be a router of a Gateway. A Gateway without a selector applies to all
// routers; it counts only in its own namespace, because its routers are unknown. selector is the Gateway's without labels of
// topology: routers at other places may read the key, but do not get it (see addAccounts).
func servesGateway(pod *model.Workload, g *model.Gateway, selector map[string]string) bool {
	ns := g.Namespace
	if g.Kind == model.KindListenerSet {
		ns = g.Parent.Namespace
	}
	if len(selector) == 0 || g.OwnNamespace {
		return pod.Namespace == ns && model.SelectorMatches(selector, pod.Labels)
	}
	return model.SelectorMatches(selector, pod.Labels)
}

func addRouter(g *model.Gateway, selector map[string]string, pod *model.Workload, granted []model.Key, into map[model.Key]*secretWatch) {
	for _, key := range granted { // the author of the grant trusts the Gateway's namespace
		if key.Kind == model.KindConfigMap {
			wantSecret(into, g.Namespace, model.NeededSecret{Key: key})
			continue
		}
		w, account := wantSecret(into, g.Namespace, model.NeededSecret{Key: key, PrivateKey: true}), pod.Namespace+"/"+pod.Account()
		w.readers[account], w.trusted[account] = true, true
	}
	for _, need := range g.Credentials(pod.Namespace) {
		w := wantSecret(into, g.Namespace, need)
		if !need.PrivateKey {
			continue
		}
		w.readers[pod.Account()] = true
		if len(selector) > 0 && g.Namespace == pod.Namespace {
			w.trusted[pod.Account()] = true
		}
	}
}
