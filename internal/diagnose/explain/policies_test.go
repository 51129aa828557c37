package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestPoliciesInForce checks that policies of a proxy are in the order of evaluation, with their rules in words.
func TestPoliciesInForce(t *testing.T) {
	w := compile(t,
		policyDocument("AuthorizationPolicy", security, "readers", "shop", "selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: [a/ns/shop/sa/b]}}, {source: {namespaces: [c]}}]}, {}]"),
		policyDocument("AuthorizationPolicy", security, "writers", "shop", "action: DENY, rules: [{to: [{operation: {methods: [PUT, POST]}}]}]"),
		policyDocument("AuthorizationPolicy", security, "other", "shop", "selector: {matchLabels: {app: other}}, rules: [{}]"),
		policyDocument("PeerAuthentication", security, "default", "shop", "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {9000: {mode: DISABLE}}"),
		webService,
	)
	web := &model.Proxy{ID: "web-1", Name: "web-1", Namespace: "shop", Type: model.ProxySidecar, Identity: true, Labels: map[string]string{"app": "web"}, ServiceAccount: "web"}
	proxies := &compiledProxies{world: w, proxies: []*model.Proxy{web}, tables: map[string][]*table.Table{}}
	place := func(m *model.Meta, field string) string { return m.Name + ".yaml:1 " + field }
	p, err := (&Explainer{Snapshot: w.store.Snapshot, Proxies: proxies, Place: place}).Policies("web-1")
	require.NoError(t, err)
	require.Equal(t, "web", p.ServiceAccount)
	require.Equal(t, []PolicyInForce{
		{Object: keyOf("AuthorizationPolicy/shop/writers"), Origin: "kubernetes", Action: model.AuthorizeDeny, Rules: []PolicyRule{
			{"spec.rules[0]", "writers.yaml:1 spec.rules[0]", "calls to methods PUT or POST"},
		}},
		{Object: keyOf("AuthorizationPolicy/shop/readers"), Origin: "kubernetes", Action: model.AuthorizeAllow, Rules: []PolicyRule{
			{"spec.rules[0]", "readers.yaml:1 spec.rules[0]", "calls from principals a/ns/shop/sa/b, or namespaces c"},
			{"spec.rules[1]", "readers.yaml:1 spec.rules[1]", "any call"},
		}},
	}, p.Policies)
	require.Equal(t, "refused: a policy has the action ALLOW", p.Default.String())
	peer := []model.Key{keyOf("PeerAuthentication/shop/default")}
	require.Equal(t, []MutualTLSMode{{80, model.MTLSStrict, peer}, {9000, model.MTLSDisable, peer}, {0, model.MTLSStrict, peer}}, p.MutualTLS)
	_, err = (&Explainer{Snapshot: w.store.Snapshot, Proxies: proxies}).Policies("gone")
	require.ErrorIs(t, err, NotConnected{"gone"})
}
