package kube

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestSecretsOfGateways checks that a Secret is read in the namespaces of the Pods that a Gateway selects. Only Pods of the
// Gateway's namespace get it without a review.
func TestSecretsOfGateways(t *testing.T) {
	meta := func(kind model.Kind, ns, name string, labels map[string]string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: name}, ResourceVersion: "1", Labels: labels}
	}
	gateway := func(ns, name, credential string, selector map[string]string, mode model.ServerTLSMode) model.Object {
		return &model.Gateway{Meta: meta(model.KindGateway, ns, name, nil), Selector: selector, Servers: []model.GatewayServer{
			{TLS: &model.ServerTLS{Mode: mode, CredentialNames: []string{credential}}},
		}}
	}
	edge := map[string]string{"istio": "ingressgateway"}
	pod := func(ns, name, account string, labels map[string]string) model.Object {
		return &model.Workload{Meta: meta(model.KindPod, ns, name, labels), ServiceAccount: account}
	}
	st := store.New()
	var events []store.Event
	for _, o := range []model.Object{
		pod("edge", "gw", "gateway", edge), pod("edge", "other", "other", nil), pod("shop", "gw", "shop-gateway", edge),
		gateway("edge", "own", "own", edge, model.ServerMutual),
		gateway("shop", "foreign", "foreign", edge, model.ServerSimple),
		gateway("edge", "all", "all", nil, model.ServerSimple),
		gateway("bank", "none", "none", map[string]string{"istio": "missing"}, model.ServerSimple),
	} {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	st.Apply(events)
	c := &Credentials{Snapshot: st.Snapshot}
	got := map[string][2][]string{}
	for k, w := range c.wanted() {
		got[k.Namespace+"/"+k.Name] = [2][]string{slices.Sorted(maps.Keys(w.readers)), slices.Sorted(maps.Keys(w.trusted))}
	}
	require.Equal(t, map[string][2][]string{
		"edge/own":        {{"gateway"}, {"gateway"}},
		"edge/own-cacert": {nil, nil},
		"shop/own":        {{"shop-gateway"}, nil},
		"shop/own-cacert": {nil, nil},
		"edge/foreign":    {{"gateway"}, nil},
		"shop/foreign":    {{"shop-gateway"}, {"shop-gateway"}},
		"edge/all":        {{"gateway", "other"}, nil},
		"bank/none":       {nil, nil}, // without a router it is only checked
	}, got)
}

// TestSecretsThatAreGranted checks that routers of the Gateway API get Secrets of other namespaces if a ReferenceGrant there
// allows the Gateway to refer to them. Others are not read.
func TestSecretsThatAreGranted(t *testing.T) {
	meta := func(kind model.Kind, ns, name string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: name}, ResourceVersion: "1"}
	}
	router := &model.Workload{Meta: meta(model.KindPod, "edge", "gw"), ServiceAccount: "gateway"}
	router.Labels = map[string]string{model.LabelGatewayName: "web"}
	gateway := &model.Gateway{
		Meta: meta(model.KindKubernetesGateway, "edge", "web"), OwnNamespace: true, Selector: router.Labels,
		Servers: []model.GatewayServer{{TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{
			"own", "kubernetes://shop/given", "kubernetes://shop/kept", "kubernetes://bank/given",
		}}}},
	}
	grant := &model.ReferenceGrant{
		Meta: meta(model.KindReferenceGrant, "shop", "edge"), From: []model.GrantFrom{{Kind: "Gateway", Namespace: "edge"}},
		To: []model.GrantTo{{Kind: "Secret", Name: "given"}},
	}
	set := &model.Gateway{
		Meta: meta(model.KindListenerSet, "shop", "set"), OwnNamespace: true, Selector: router.Labels, Parent: gateway.Key,
		Servers: []model.GatewayServer{{TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{
			"kubernetes://shop/set", "kubernetes://edge/own", "kubernetes://bank/given",
		}}}},
	}
	grantToSet := &model.ReferenceGrant{
		Meta: meta(model.KindReferenceGrant, "bank", "shop"), From: []model.GrantFrom{{Kind: "ListenerSet", Namespace: "shop"}}, To: []model.GrantTo{{Kind: "Secret"}},
	}
	accepting := *gateway
	accepting.Servers, accepting.ListenerSets = nil, &model.NamespaceSelection{Namespace: "*"}
	closed := accepting
	closed.ListenerSets = nil
	istio := *gateway
	istio.Key, istio.OwnNamespace = model.Key{Kind: model.KindGateway, Namespace: "edge", Name: "istio"}, false
	for name, c := range map[string]struct {
		objects []model.Object
		want    map[string][]string
	}{
		"granted":        {[]model.Object{router, gateway, grant}, map[string][]string{"edge/own": {"gateway"}, "shop/given": {"edge/gateway"}}},
		"not granted":    {[]model.Object{router, gateway}, map[string][]string{"edge/own": {"gateway"}}},
		"without Pods":   {[]model.Object{gateway, grant}, map[string][]string{"edge/own": nil, "shop/given": nil}},
		"of a set":       {[]model.Object{router, &accepting, set}, map[string][]string{"shop/set": {"edge/gateway"}}},
		"given to a set": {[]model.Object{router, &accepting, set, grantToSet}, map[string][]string{"shop/set": {"edge/gateway"}, "bank/given": {"edge/gateway"}}},
		"a set alone":    {[]model.Object{router, &closed, set, grantToSet}, map[string][]string{}},
		"one of Istio's": {[]model.Object{router, &istio, grant}, map[string][]string{"edge/own": {"gateway"}}},
	} {
		got := map[string][]string{}
		for k, w := range wantedIn(snapshotOf(c.objects)) {
			readers := slices.Sorted(maps.Keys(w.readers))
			require.Equal(t, readers, slices.Sorted(maps.Keys(w.trusted)), "%s: the API server is asked about no other account", name)
			got[k.Namespace+"/"+k.Name] = readers
		}
		require.Equal(t, c.want, got, name)
	}
}

// TestChangesOfReferencesAreNoticed checks each kind that decides which Secrets are read and which proxies get them: after a
// change both are computed again.
func TestChangesOfReferencesAreNoticed(t *testing.T) {
	for _, kind := range []model.Kind{
		model.KindGateway, model.KindKubernetesGateway, model.KindListenerSet, model.KindNamespace, model.KindDestinationRule, model.KindSidecar, model.KindWasmPlugin,
		model.KindPod, model.KindWorkloadEntry, model.KindReferenceGrant, model.KindBackendTLSPolicy,
	} {
		c := NewCredentials(nil, config.Decoder{}, nil, nil, nil)
		c.Applied([]store.Change{{Key: model.Key{Kind: model.KindService}}})
		require.Empty(t, c.wake)
		c.Applied([]store.Change{{Key: model.Key{Kind: kind, Namespace: "shop", Name: "a"}}})
		require.Len(t, c.wake, 1, kind)
	}
}

// TestSecretsOfSidecars checks that a Secret of a Sidecar's listener is read in the Sidecar's namespace, for the workloads
// that it selects. Each of their accounts is reviewed.
func TestSecretsOfSidecars(t *testing.T) {
	meta := func(kind model.Kind, ns, name string, labels map[string]string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: name}, ResourceVersion: "1", Labels: labels}
	}
	web := map[string]string{"app": "web"}
	pod := func(ns, name string, labels map[string]string) model.Object {
		return &model.Workload{Meta: meta(model.KindPod, ns, name, labels), ServiceAccount: name}
	}
	sidecar := &model.Sidecar{Meta: meta(model.KindSidecar, "shop", "web", nil), Selector: web, Ingress: []model.IngressListener{
		{TLS: &model.ServerTLS{Mode: model.ServerMutual, CredentialNames: []string{"web"}}},
		{TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{"kubernetes://bank/web"}}},
		{},
	}}
	st := store.New()
	var events []store.Event
	for _, o := range []model.Object{sidecar, pod("shop", "web", web), pod("shop", "other", nil), pod("bank", "bank", web)} {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	st.Apply(events)
	got := map[string][]string{}
	for k, w := range (&Credentials{Snapshot: st.Snapshot}).wanted() {
		require.Empty(t, w.trusted)
		got[k.Namespace+"/"+k.Name] = slices.Sorted(maps.Keys(w.readers))
	}
	require.Equal(t, map[string][]string{"shop/web": {"web"}, "shop/web-cacert": nil}, got)
	require.True(t, concerns(model.KindSidecar))
}

// TestSecretsOfSelectorsByTopology checks that the accounts of workloads that a selector with labels of topology selects may read
// a key. Where they run is not known here, so accounts of workloads at other places may read it, too.
func TestSecretsOfSelectorsByTopology(t *testing.T) {
	meta := func(kind model.Kind, ns, name string, labels map[string]string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: name}, ResourceVersion: "1", Labels: labels}
	}
	web := map[string]string{"app": "web"}
	pod := func(ns, name string, labels map[string]string) model.Object {
		return &model.Workload{Meta: meta(model.KindPod, ns, name, labels), ServiceAccount: name}
	}
	zone := map[string]string{model.LabelZone: "z1"}
	webInZone := map[string]string{"app": "web", model.LabelZone: "z1", model.LabelCluster: "Kubernetes"}
	server := &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{"key"}}
	rule := func(selector map[string]string) model.Object {
		return &model.DestinationRule{Meta: meta(model.KindDestinationRule, "shop", "a", nil), WorkloadSelector: selector, Policy: model.TrafficPolicy{
			TLS: &model.ClientTLS{Mode: model.TLSMutual, CredentialName: "key"},
		}}
	}
	gateway := func(selector map[string]string) model.Object {
		return &model.Gateway{Meta: meta(model.KindGateway, "shop", "a", nil), Selector: selector, Servers: []model.GatewayServer{{TLS: server}}}
	}
	for name, tc := range map[string]struct {
		object           model.Object
		readers, trusted []string // of the Secret in namespace shop
		elsewhere        []string // readers of that in namespace bank
	}{
		"DestinationRule": {rule(webInZone), []string{"web"}, nil, nil},
		"of a zone":       {rule(zone), []string{"other", "web"}, nil, nil},
		"Sidecar": {&model.Sidecar{
			Meta: meta(model.KindSidecar, "shop", "a", nil), Selector: webInZone, Ingress: []model.IngressListener{{TLS: server}},
		}, []string{"web"}, nil, nil},
		"WasmPlugin": {&model.WasmPlugin{
			Meta: meta(model.KindWasmPlugin, "shop", "a", nil), Selector: webInZone, Module: model.WasmModule{URL: "oci://example.com/a", PullSecret: "key"},
		}, []string{"web"}, nil, nil},
		"Gateway":         {gateway(webInZone), []string{"web"}, []string{"web"}, []string{"bank"}},
		"all of the zone": {gateway(zone), []string{"other", "web"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := wantedIn(snapshotOf([]model.Object{tc.object, pod("shop", "web", web), pod("shop", "other", nil), pod("bank", "bank", web)}))
			of := func(ns string) *secretWatch {
				if w := wanted[model.Key{Kind: model.KindSecret, Namespace: ns, Name: "key"}]; w != nil {
					return w
				}
				return &secretWatch{}
			}
			require.Equal(t, tc.readers, slices.Sorted(maps.Keys(of("shop").readers)))
			require.Equal(t, tc.trusted, slices.Sorted(maps.Keys(of("shop").trusted)))
			require.Equal(t, tc.elsewhere, slices.Sorted(maps.Keys(of("bank").readers)))
		})
	}
}

// TestConfigMapsThatAreRead checks that only ConfigMaps are read that rules without a selector, or Gateways with routers,
// name.
func TestConfigMapsThatAreRead(t *testing.T) {
	meta := func(kind model.Kind, name string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: "shop", Name: name}, ResourceVersion: "1"}
	}
	rule := func(name, credential string) model.Object {
		return &model.DestinationRule{Meta: meta(model.KindDestinationRule, name), Policy: model.TrafficPolicy{TLS: &model.ClientTLS{Mode: model.TLSSimple, CredentialName: credential}}}
	}
	gateway := &model.Gateway{Meta: meta(model.KindGateway, "edge"), Servers: []model.GatewayServer{
		{TLS: &model.ServerTLS{Mode: model.ServerMutual, CredentialNames: []string{"web"}, CACredentialName: "configmap://trust/clients"}},
	}}
	st := store.New()
	for _, o := range []model.Object{rule("a", "configmap://shop/servers"), rule("b", "servers"), gateway, &model.Workload{Meta: meta(model.KindPod, "router")}} {
		st.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	var got []string
	for k, w := range (&Credentials{Snapshot: st.Snapshot}).wanted() {
		got = append(got, k.String())
		require.Equal(t, k.Kind == model.KindSecret, w.keyAsked, k.String())
	}
	require.ElementsMatch(t, []string{"ConfigMap/shop/servers", "ConfigMap/trust/clients", "Secret/shop/web"}, got)
}

// TestKindsOfOneName checks that objects of one kind are not mistaken for those of another with the same name.
func TestKindsOfOneName(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range customKinds() {
		r := custom(k, "v1", "plural")
		require.False(t, seen[r.title()], r.title())
		seen[r.title()] = true
	}
	require.True(t, seen["Gateway"] && seen["KubernetesGateway"])
}
