package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

const (
	keyOfAPI = "kubernetes://api-client"
	casOfAPI = "kubernetes://api-client-cacert"
)

// credentialMesh has a rule by which workloads "web" of "shop" call api.example.com with a secret.
func credentialMesh(t *testing.T) (*store.Store, *Deriver) {
	t.Helper()
	st, d := store.New(), New(model.DefaultMesh(), 1)
	meta := func(k model.Kind, name string) model.Meta {
		return model.Meta{Key: model.Key{Kind: k, Namespace: "shop", Name: name}, ResourceVersion: "1"}
	}
	entry := &model.ServiceEntry{Meta: meta(model.KindServiceEntry, "api"), Hosts: []model.Host{"api.example.com"}, Template: model.Service{
		External: true, Resolution: model.ResolutionDNS, Ports: []model.ServicePort{{Name: "http", Number: 443, Protocol: model.ProtocolHTTP}},
	}}
	rule := &model.DestinationRule{
		Meta: meta(model.KindDestinationRule, "api"), Host: "api.example.com", WorkloadSelector: map[string]string{"app": "web"},
		Policy: model.TrafficPolicy{TLS: &model.ClientTLS{Mode: model.TLSMutual, CredentialName: "api-client"}},
	}
	_, changes := st.Apply([]store.Event{{Key: entry.Key, Object: entry}, {Key: rule.Key, Object: rule}})
	d.Apply(changes)
	return st, d
}

// ruleOfAPI is a copy of the mesh's rule.
func ruleOfAPI(st *store.Store) model.DestinationRule {
	return *st.Snapshot().Get(model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "api"}).(*model.DestinationRule)
}

func secretOf(version string, readers []string) *model.Secret {
	return &model.Secret{
		Meta:        model.Meta{Key: model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "api-client"}, ResourceVersion: version},
		Certificate: "certificate", PrivateKey: model.NewPrivateKey("key " + version), CA: "ca", Readers: readers,
	}
}

func webProxy(ns, account string, verified bool) *model.Proxy {
	return &model.Proxy{
		Type: model.ProxySidecar, Namespace: ns, Name: "web", IPs: []string{"10.1.0.9"}, Labels: map[string]string{"app": "web"},
		ServiceAccount: account, Verified: verified, DNSDomain: ns + ".svc.cluster.local",
	}
}

// has opens a proxy's outbound group and returns its secrets.
func has(d *Deriver, p *model.Proxy) map[string]string {
	k, _ := d.Index().Keys(p)
	out := map[string]string{}
	for name, s := range d.Open(k).Secrets {
		if s != nil {
			out[name] = s.PrivateKey.PEM() + s.CA
		}
	}
	d.Close(k)
	return out
}

func putSecret(st *store.Store, d *Deriver, s *model.Secret) Update {
	_, changes := st.Apply([]store.Event{{Key: s.Meta.Key, Object: s}})
	return d.Apply(changes)
}

// TestSecretsGoOnlyToReaders checks that only proxies whose service account may read a Secret have it.
func TestSecretsGoOnlyToReaders(t *testing.T) {
	st, d := credentialMesh(t)
	putSecret(st, d, secretOf("1", []string{"web"}))
	require.Equal(t, map[string]string{keyOfAPI: "key 1", casOfAPI: "ca"}, has(d, webProxy("shop", "web", true)))
	require.Equal(t, map[string]string{casOfAPI: "ca"}, has(d, webProxy("shop", "other", true)), "it may not read the key")
	require.Empty(t, has(d, webProxy("shop", "web", false)), "an unverified proxy")
	require.Empty(t, has(d, webProxy("elsewhere", "web", true)), "the Secret is another namespace's")
	other := webProxy("shop", "web", true)
	other.Labels = map[string]string{"app": "other"}
	require.Empty(t, has(d, other), "the rule does not select it")
}

// TestASecretThatChangesLeavesClustersAlone checks that clusters stay unchanged: a new cluster would lose its connections.
func TestASecretThatChangesLeavesClustersAlone(t *testing.T) {
	st, d := credentialMesh(t)
	k, _ := d.Index().Keys(webProxy("shop", "web", true))
	require.NotNil(t, d.Open(k).Clusters["outbound|443||api.example.com"])
	delta := putSecret(st, d, secretOf("1", nil)).Deltas[k]
	require.Equal(t, "key 1", delta.Secrets[keyOfAPI].PrivateKey.PEM())
	stapled := secretOf("2", nil)
	stapled.OCSPStaple = "staple"
	delta = putSecret(st, d, stapled).Deltas[k]
	require.Equal(t, "key 2", delta.Secrets[keyOfAPI].PrivateKey.PEM())
	require.Equal(t, "staple", delta.Secrets[keyOfAPI].OCSPStaple)
	require.Equal(t, 2, delta.Len(), "only the secrets: %v", delta)
	delta = putSecret(st, d, secretOf("3", []string{})).Deltas[k]
	require.Contains(t, delta.Secrets, keyOfAPI)
	require.Nil(t, delta.Secrets[keyOfAPI], "it was taken from its reader")
}

// TestASecretOfCAsTakesPrecedence checks the precedence of Istio.
func TestASecretOfCAsTakesPrecedence(t *testing.T) {
	st, d := credentialMesh(t)
	putSecret(st, d, secretOf("1", nil))
	own := secretOf("1", nil)
	own.Name += model.SuffixCA
	own.CA = "other ca"
	putSecret(st, d, own)
	require.Equal(t, "other ca", has(d, webProxy("shop", "web", true))[casOfAPI])
}

// TestASecretOfCAsThatDoesNotExist checks that a missing Secret of CAs does not precede the key's, and that an unreadable one
// does.
func TestASecretOfCAsThatDoesNotExist(t *testing.T) {
	st, d := credentialMesh(t)
	putSecret(st, d, secretOf("1", nil))
	for version, c := range map[string]struct{ problem, want string }{"1": {model.NoSecret, "ca"}, "2": {"the control plane may not read it", ""}} {
		own := secretOf(version, nil)
		own.Name += model.SuffixCA
		own.CA, own.Problem, own.CAProblem = "", c.problem, c.problem
		putSecret(st, d, own)
		require.Equal(t, c.want, has(d, webProxy("shop", "web", true))[casOfAPI], c.problem)
	}
}

// TestAccountsMatterOnlyWithSecrets checks that other proxies share groups.
func TestAccountsMatterOnlyWithSecrets(t *testing.T) {
	_, d := credentialMesh(t)
	key := func(ns, account string) GroupKey { k, _ := d.Index().Keys(webProxy(ns, account, true)); return k }
	require.NotEqual(t, key("shop", "a"), key("shop", "b"))
	require.Equal(t, key("elsewhere", "a"), key("elsewhere", "b"))
}

// TestAuthoritiesOfConfigMaps checks that a rule without a selector may name CAs of its namespace, and that all clients get
// these, but no key.
func TestAuthoritiesOfConfigMaps(t *testing.T) {
	st, d := credentialMesh(t)
	const name = "configmap://shop/roots-cacert"
	rule := ruleOfAPI(st)
	rule.ResourceVersion, rule.WorkloadSelector = "2", nil
	rule.Policy.TLS = &model.ClientTLS{Mode: model.TLSSimple, CredentialName: "configmap://shop/roots"}
	roots := &model.Secret{Meta: model.Meta{Key: model.Key{Kind: model.KindConfigMap, Namespace: "shop", Name: "roots"}, ResourceVersion: "1"}, CA: "roots"}
	apply := func(k model.Key, o model.Object) {
		_, changes := st.Apply([]store.Event{{Key: k, Object: o}})
		d.Apply(changes)
	}
	apply(rule.Key, &rule)
	require.Empty(t, has(d, webProxy("shop", "web", true)), "there is none yet")
	apply(roots.Key, roots)
	for _, p := range []*model.Proxy{webProxy("shop", "web", true), webProxy("shop", "web", false), webProxy("bank", "other", false)} {
		require.Equal(t, map[string]string{name: "roots"}, has(d, p))
	}
	require.Zero(t, d.Index().Sizes()["credentials"], "the account does not matter")
	k, _ := d.Index().Keys(webProxy("bank", "", false))
	d.Open(k)
	changed := *roots
	changed.ResourceVersion, changed.CA = "2", "changed"
	_, changes := st.Apply([]store.Event{{Key: roots.Key, Object: &changed}})
	require.Equal(t, "changed", d.Apply(changes).Deltas[k].Secrets[name].CA)
	_, changes = st.Apply([]store.Event{{Key: roots.Key}})
	delta := d.Apply(changes).Deltas[k]
	require.Contains(t, delta.Secrets, name)
	require.Nil(t, delta.Secrets[name])
}

// TestAConfigMapIsNotTheOneWithoutItsSuffix checks that of two ConfigMaps a rule and a router's server get the one they name.
func TestAConfigMapIsNotTheOneWithoutItsSuffix(t *testing.T) {
	st, d := credentialMesh(t)
	rule := ruleOfAPI(st)
	rule.ResourceVersion, rule.WorkloadSelector = "2", nil
	rule.Policy.TLS = &model.ClientTLS{Mode: model.TLSSimple, CredentialName: "configmap://shop/roots-cacert"}
	gateway := &model.Gateway{Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "edge"}, ResourceVersion: "1"}, Servers: []model.GatewayServer{{
		Port: model.GatewayPort{Number: 443, Name: "https", Protocol: model.ProtocolHTTPS}, Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
		TLS: &model.ServerTLS{Mode: model.ServerMutual, CredentialNames: []string{"web"}, CACredentialName: "configmap://shop/roots-cacert"},
	}}}
	events := []store.Event{{Key: rule.Key, Object: &rule}, {Key: gateway.Key, Object: gateway}}
	for _, name := range []string{"roots", "roots-cacert"} {
		k := model.Key{Kind: model.KindConfigMap, Namespace: "shop", Name: name}
		events = append(events, store.Event{Key: k, Object: &model.Secret{Meta: model.Meta{Key: k, ResourceVersion: "1"}, CA: "CAs of " + name}})
	}
	_, changes := st.Apply(events)
	d.Apply(changes)
	router := webProxy("shop", "web", true)
	router.Type = model.ProxyRouter
	for _, p := range []*model.Proxy{webProxy("shop", "web", true), router} {
		require.Equal(t, map[string]string{"configmap://shop/roots-cacert-cacert": "CAs of roots-cacert"}, has(d, p), p.Type)
	}
}

// TestSecretsOfOtherNamespacesAreGranted checks that a Gateway's routers have them as long as a ReferenceGrant allows it.
func TestSecretsOfOtherNamespacesAreGranted(t *testing.T) {
	const given = "kubernetes://shop/api-client"
	st, d := credentialMesh(t)
	meta := func(kind model.Kind, ns string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: "web"}, ResourceVersion: "1"}
	}
	labels := map[string]string{model.LabelGatewayName: "web"}
	gateway := &model.Gateway{
		Meta: meta(model.KindKubernetesGateway, "edge"), OwnNamespace: true, Selector: labels, Servers: []model.GatewayServer{{
			Port: model.GatewayPort{Number: 443, Protocol: model.ProtocolTCP}, Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
			TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{given}},
		}},
	}
	grant := &model.ReferenceGrant{
		Meta: meta(model.KindReferenceGrant, "shop"), From: []model.GrantFrom{{Kind: "Gateway", Namespace: "edge"}}, To: []model.GrantTo{{Kind: "Secret"}},
	}
	apply := func(k model.Key, o model.Object) Update {
		_, changes := st.Apply([]store.Event{{Key: k, Object: o}})
		return d.Apply(changes)
	}
	router := webProxy("edge", "gateway", true)
	router.Type, router.Labels = model.ProxyRouter, labels
	apply(gateway.Key, gateway)
	putSecret(st, d, secretOf("1", []string{"edge/gateway"}))
	require.Empty(t, has(d, router), "nothing is granted")
	k, _ := d.Index().Keys(router)
	d.Open(k)
	delta := apply(grant.Key, grant).Deltas[k]
	require.Equal(t, "key 1", delta.Secrets[given].PrivateKey.PEM())
	delta = apply(grant.Key, nil).Deltas[k]
	require.Contains(t, delta.Secrets, given)
	require.Nil(t, delta.Secrets[given], "the grant was taken back")
	apply(grant.Key, grant)
	other := webProxy("edge", "other", true)
	other.Type, other.Labels = model.ProxyRouter, labels
	require.Empty(t, has(d, other), "another account")
}

// TestSecretsOfListenerSets checks that routers have the Secrets of a ListenerSet's namespace as long as their Gateway
// accepts the set, and others only with a ReferenceGrant for ListenerSets.
func TestSecretsOfListenerSets(t *testing.T) {
	const given = "kubernetes://shop/api-client"
	st, d := credentialMesh(t)
	meta := func(kind model.Kind, ns, version string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: "web"}, ResourceVersion: version}
	}
	labels := map[string]string{model.LabelGatewayName: "web"}
	gateway := &model.Gateway{Meta: meta(model.KindKubernetesGateway, "edge", "1"), OwnNamespace: true, Selector: labels}
	set := func(ns string) *model.Gateway {
		return &model.Gateway{
			Meta: meta(model.KindListenerSet, ns, "1"), OwnNamespace: true, Selector: labels, Parent: gateway.Key, Servers: []model.GatewayServer{{
				Port: model.GatewayPort{Number: 443, Protocol: model.ProtocolTCP}, Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
				TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{given}}, Routes: []model.Kind{model.KindTCPRoute},
			}},
		}
	}
	apply := func(k model.Key, o model.Object) {
		_, changes := st.Apply([]store.Event{{Key: k, Object: o}})
		d.Apply(changes)
	}
	router := webProxy("edge", "gateway", true)
	router.Type, router.Labels = model.ProxyRouter, labels
	apply(gateway.Key, gateway)
	putSecret(st, d, secretOf("1", []string{"edge/gateway"}))
	apply(set("shop").Key, set("shop"))
	require.Empty(t, has(d, router), "the Gateway accepts no sets")
	accepting := *gateway
	accepting.Meta, accepting.ListenerSets = meta(model.KindKubernetesGateway, "edge", "2"), &model.NamespaceSelection{Namespace: "*"}
	apply(gateway.Key, &accepting)
	require.Contains(t, has(d, router), given)
	apply(set("shop").Key, nil)
	apply(set("bank").Key, set("bank"))
	require.Empty(t, has(d, router), "the Secret is of another namespace than the set")
	grant := &model.ReferenceGrant{
		Meta: meta(model.KindReferenceGrant, "shop", "1"), From: []model.GrantFrom{{Kind: "ListenerSet", Namespace: "bank"}}, To: []model.GrantTo{{Kind: "Secret"}},
	}
	apply(grant.Key, grant)
	require.Contains(t, has(d, router), given)
	apply(gateway.Key, gateway)
	require.Empty(t, has(d, router), "the Gateway does not accept sets any more")
}
