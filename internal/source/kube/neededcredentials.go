package kube

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// wanted returns the Secrets that rules, Sidecars, Gateways and plugins refer to, and the readers of their keys.
func (c *Credentials) wanted() map[model.Key]*secretWatch { return wantedIn(c.Snapshot()) }

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
			if w := wantSecret(out, need); need.PrivateKey {
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
				wantSecret(into, need)
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
			if w := wantSecret(into, need); need.PrivateKey {
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
			w := wantSecret(into, model.NeededSecret{Key: key, PrivateKey: true})
			for _, selector := range model.Selectors(p) {
				addAccounts(snap, p.Namespace, selector, w.readers)
			}
		}
	}
}

// wantSecret adds a Secret, or adds to it. It ignores the ConfigMap with the mesh's configuration, which another watch
// reads.
func wantSecret(into map[model.Key]*secretWatch, need model.NeededSecret) *secretWatch {
	w := into[need.Key]
	if w == nil {
		w = &secretWatch{readers: map[string]bool{}, trusted: map[string]bool{}}
	}
	if !need.IsMeshConfig() {
		into[need.Key] = w
	}
	w.keyAsked = w.keyAsked || need.PrivateKey
	return w
}

// addAccounts adds the service accounts of the selected workloads of a namespace.
func addAccounts(snap *store.Snapshot, namespace string, selector map[string]string, into map[string]bool) {
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range snap.All(kind) {
			w, ok := o.(*model.Workload)
			if ok && w.Namespace == namespace && model.SelectorMatches(selector, w.Labels) {
				into[w.Account()] = true
			}
		}
	}
}
