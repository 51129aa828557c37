package explain

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// naming are the kinds of objects that name Secrets which proxies get by SDS.
var naming = []model.Kind{model.KindDestinationRule, model.KindBackendTLSPolicy, model.KindSidecar, model.KindGateway, model.KindKubernetesGateway}

// secretBehind are the objects that have a proxy given a Secret, or the CAs of a ConfigMap; in order.
func secretBehind(snap *store.Snapshot, p distribution.Part) []model.Key {
	plain, isCA := strings.CutSuffix(p.Entry.Name, model.SuffixCA)
	credential, ok := model.ParseCredential(plain)
	if !ok || p.Proxy == nil {
		return nil
	}
	key, own := credential.In(p.Proxy.Namespace)
	if !own {
		key = credential.Key()
	}
	ca := key
	ca.Name += model.SuffixCA
	var out []model.Key
	for _, kind := range naming {
		for o := range snap.All(kind) {
			if (own || isGranted(o, key)) && slices.ContainsFunc(needs(o, p.Proxy), func(n model.NeededSecret) bool { return n.Key == key || isCA && n.Key == ca }) {
				out = append(out, o.Metadata().Key)
			}
		}
	}
	slices.SortFunc(out, model.Key.Compare)
	return out
}

// needs are the Secrets that an object has a proxy given.
func needs(o model.Object, p *model.Proxy) []model.NeededSecret {
	switch o := o.(type) {
	case *model.DestinationRule:
		if model.SelectorMatches(o.WorkloadSelector, p.Labels) {
			return slices.DeleteFunc(o.Credentials(), func(n model.NeededSecret) bool {
				return n.Kind == model.KindSecret && len(o.WorkloadSelector) == 0 // nobody gets it
			})
		}
	case *model.BackendTLSPolicy:
		return o.Credentials()
	case *model.Sidecar:
		if p.Type == model.ProxySidecar && o.Namespace == p.Namespace && model.SelectorMatches(o.Selector, p.Labels) {
			return o.Credentials()
		}
	case *model.Gateway:
		if p.Type == model.ProxyRouter && selects(o, p) {
			return append(o.Credentials(p.Namespace), grants(o)...)
		}
	case *model.WasmPlugin:
		if key, named := o.PullSecretKey(); named && o.Namespace == p.Namespace && model.Selects(o, p.Labels) {
			return []model.NeededSecret{{Key: key, PrivateKey: true}}
		}
	}
	return nil
}

// givenTo tells which proxies are given what is in a Secret, or the CAs of a ConfigMap.
func givenTo(snap *store.Snapshot, key model.Key) func(*model.Proxy) bool {
	is := func(n model.NeededSecret) bool { return n.Key == key }
	var by []model.Object
	for _, kind := range append([]model.Kind{model.KindWasmPlugin}, naming...) {
		for o := range snap.All(kind) {
			if slices.ContainsFunc(secretsOf(o, key.Namespace), is) {
				by = append(by, o)
			}
		}
	}
	return func(p *model.Proxy) bool {
		own := key.Kind != model.KindSecret || p.Namespace == key.Namespace
		return slices.ContainsFunc(by, func(o model.Object) bool { return (own || isGranted(o, key)) && slices.ContainsFunc(needs(o, p), is) })
	}
}

// grants are the Secrets of other namespaces that routers of a Gateway get where a ReferenceGrant lets them.
func grants(g *model.Gateway) []model.NeededSecret {
	var out []model.NeededSecret
	for _, key := range g.GrantsNeeded() {
		out = append(out, model.NeededSecret{Key: key, PrivateKey: true})
	}
	return out
}

// isGranted tells whether an object may have routers given a Secret of another namespace.
func isGranted(o model.Object, key model.Key) bool {
	g, ok := o.(*model.Gateway)
	return ok && slices.Contains(g.GrantsNeeded(), key)
}

// secretsOf are the Secrets that an object names, whoever is given them: of Gateways what routers of a namespace need.
func secretsOf(o model.Object, namespace string) []model.NeededSecret {
	switch o := o.(type) {
	case interface{ Credentials() []model.NeededSecret }:
		return o.Credentials()
	case *model.Gateway:
		return append(o.Credentials(namespace), grants(o)...)
	case *model.WasmPlugin:
		key, _ := o.PullSecretKey()
		return []model.NeededSecret{{Key: key}}
	}
	return nil
}
