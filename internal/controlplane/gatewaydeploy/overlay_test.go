package gatewaydeploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// gatewayOf decodes a Gateway.
func gatewayOf(t testing.TB, spec string) *gateway {
	t.Helper()
	g := &gateway{}
	g.Name, g.Namespace = "web", "shop"
	require.NoError(t, yaml.Unmarshal([]byte(spec), &g.Spec))
	return g
}

// TestOverlaysThatCannotBeMerged checks patches for which the merge of Kubernetes panics.
func TestOverlaysThatCannotBeMerged(t *testing.T) {
	for name, patch := range map[string]string{
		"null in a list":           "spec: {template: {spec: {containers: [null]}}}",
		"text in a list":           "spec: {template: {spec: {containers: [{name: a}, b]}}}",
		"null among ports":         "spec: {template: {spec: {containers: [{name: istio-proxy, ports: [null, null]}]}}}",
		"keys are not comparable":  "metadata: {$retainKeys: [{a: 1}]}",
		"a directive out of place": "metadata: {labels: {$patch: replace}}",
	} {
		t.Run(name, func(t *testing.T) {
			config := inject.Default()
			require.NoError(t, config.Prepare())
			p, err := planOf(gatewayOf(t, "gatewayClassName: istio"), nil)
			require.NoError(t, err)
			_, err = p.render(config, []overlay{{"ConfigMap shop/params", map[string]string{"deployment": patch}}})
			var about unusableError
			require.ErrorAs(t, err, &about)
			require.ErrorContains(t, err, "ConfigMap shop/params: data[deployment]: ")
		})
	}
}

// FuzzRender renders Gateways with patches. The result is an error, or objects that belong to the Gateway.
func FuzzRender(f *testing.F) {
	f.Add("gatewayClassName: istio\nlisteners: [{name: a.b, port: 80, protocol: HTTP}]", "deployment", "spec: {replicas: 2}")
	f.Add("gatewayClassName: istio\ninfrastructure: {annotations: {proxy.istio.io/config: '{}'}}", "service", "spec: {ports: [null]}")
	f.Add("{gatewayClassName: istio, addresses: [{value: 192.0.2.1}]}", "podDisruptionBudget", "$patch: delete")
	config := inject.Default()
	require.NoError(f, config.Prepare())
	f.Fuzz(func(t *testing.T, spec, key, patch string) {
		g := &gateway{}
		g.Name, g.Namespace, g.UID = "web", "shop", "1"
		if yaml.Unmarshal([]byte(spec), &g.Spec) != nil {
			t.Skip()
		}
		p, err := planOf(g, g.Spec.Listeners)
		if err != nil {
			return
		}
		objects, err := p.render(config, []overlay{{"ConfigMap shop/params", map[string]string{key: patch}}})
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, len(objects), 3)
		for _, o := range objects {
			require.Equal(t, "shop", o.GetNamespace())
			require.Contains(t, o.GetLabels(), labelManaged)
			require.Len(t, o.GetOwnerReferences(), 1)
			require.Equal(t, g.UID, o.GetOwnerReferences()[0].UID)
		}
	})
}
