package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var allCharts = []string{BaseChart, ControlPlaneChart, GatewayChart, CNIChart}

// valuesOf decodes values as a file of values has them.
func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

// rendered returns the objects of a chart.
func rendered(t *testing.T, r Release) []*unstructured.Unstructured {
	t.Helper()
	if r.Namespace == "" {
		r.Namespace = DefaultNamespace
	}
	list, err := r.Objects()
	require.NoError(t, err)
	return list
}

// pick returns the object with a kind and a name; nil: there is none.
func pick(list []*unstructured.Unstructured, kind, name string) object {
	for _, o := range list {
		if o.GetKind() == kind && o.GetName() == name {
			return o.Object
		}
	}
	return nil
}

// TestGlobalValues checks that each chart accepts the names under global of all charts, which may share a file, and refuses others.
func TestGlobalValues(t *testing.T) {
	shared := map[string]any{}
	for _, name := range allCharts {
		c, err := loadChart(name)
		require.NoError(t, err)
		global, _ := c.Values["global"].(map[string]any)
		shared = MergeValues(shared, global)
	}
	for _, name := range allCharts {
		t.Run(name, func(t *testing.T) {
			_, err := Release{Chart: name, Namespace: DefaultNamespace, Values: map[string]any{"global": shared, "enabled": true}}.Render()
			require.NoError(t, err)
			for wrong, want := range map[string]string{
				"configvalidation: false": "global.configvalidation: unknown value",
				"nativeNftables: true":    "global.nativeNftables: unknown value",
				"platform: openshift":     "at '/global/platform'",
			} {
				_, err := Release{Chart: name, Namespace: DefaultNamespace, Values: valuesOf(t, "global: {"+wrong+"}")}.Render()
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestGlobalValuesOfOtherCharts checks that our charts, as parts of another one, accept its names under global.
func TestGlobalValuesOfOtherCharts(t *testing.T) {
	for _, name := range allCharts {
		t.Run(name, func(t *testing.T) {
			part, err := loadChart(name)
			require.NoError(t, err)
			whole := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "platform", Version: "0.1.0"}}
			whole.SetDependencies(part)
			values, err := chartutil.ToRenderValues(whole, valuesOf(t, "global: {storageClass: fast}"), chartutil.ReleaseOptions{Name: "platform", Namespace: "mesh"}, nil)
			require.NoError(t, err)
			_, err = engine.Render(whole, values)
			require.NoError(t, err)
		})
	}
}

// TestNamespacesOfDigits checks that a namespace such as 1234 is a string.
func TestNamespacesOfDigits(t *testing.T) {
	for _, name := range allCharts {
		t.Run(name, func(t *testing.T) {
			values := map[string]any{}
			if name == ControlPlaneChart {
				values = valuesOf(t, "{revisionTags: [prod], global: {networkPolicy: {enabled: true}}, meshConfig: {trustDomain: a}, monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}")
			}
			if name == CNIChart {
				values = valuesOf(t, "{taint: {enabled: true}, global: {networkPolicy: {enabled: true}, platform: gke}}")
			}
			if name == GatewayChart {
				values = valuesOf(t, "{podDisruptionBudget: {minAvailable: 1}, global: {networkPolicy: {enabled: true}, istioNamespace: \"5678\"}}")
			}
			for _, o := range rendered(t, Release{Chart: name, Namespace: "1234", Values: values}) {
				if o.GetKind() == "CustomResourceDefinition" {
					continue // it has no namespace, but fields of that name
				}
				walk(o.Object, func(key string, v any) {
					if key == "namespace" {
						require.IsType(t, "", v, "%s %s", o.GetKind(), o.GetName())
					}
				})
			}
		})
	}
}

// walk calls f for each field of an object and of the objects in it.
func walk(v any, f func(key string, v any)) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			f(k, e)
			walk(e, f)
		}
	case []any:
		for _, e := range v {
			walk(e, f)
		}
	}
}

// TestResourcesOfSidecars checks that values change a part of the default resources, as with Istio's chart, and that null
// removes one.
func TestResourcesOfSidecars(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                                    "{limits: {cpu: 2000m, memory: 1024Mi}, requests: {cpu: 100m, memory: 128Mi}}",
		"{resources: {limits: {memory: 2Gi}}}":  "{limits: {cpu: 2000m, memory: 2Gi}, requests: {cpu: 100m, memory: 128Mi}}",
		"{resources: {limits: {memory: null}}}": "{limits: {cpu: 2000m}, requests: {cpu: 100m, memory: 128Mi}}",
		"{resources: {limits: null}}":           "{requests: {cpu: 100m, memory: 128Mi}}",
		"{resources: null}":                     "{}",
	} {
		t.Run(values, func(t *testing.T) {
			list := rendered(t, Release{Chart: ControlPlaneChart, Values: valuesOf(t, "global: {proxy: "+values+"}")})
			text, _ := pick(list, "ConfigMap", "moonsail-injection").at("data")["config"].(string)
			require.Equal(t, object(valuesOf(t, want)), object(valuesOf(t, text)).at("resources"), text)
		})
	}
	list := rendered(t, Release{Chart: ControlPlaneChart, Values: valuesOf(t, "injection: {resources: {requests: {cpu: 1}}}")})
	text, _ := pick(list, "ConfigMap", "moonsail-injection").at("data")["config"].(string)
	require.Equal(t, object(valuesOf(t, "{requests: {cpu: 1}}")), object(valuesOf(t, text)).at("resources"), "injection.resources replaces the defaults")
	_, err := Release{Chart: ControlPlaneChart, Namespace: DefaultNamespace, Values: valuesOf(t, "resources: {limits: null}")}.Render()
	require.NoError(t, err)
	_, err = Release{Chart: ControlPlaneChart, Namespace: DefaultNamespace, Values: valuesOf(t, "resources: {limits: {memory: null}}")}.Render()
	require.ErrorContains(t, err, "at '/resources/limits/memory'", "the API server reads it as 0")
}

// TestValuesOfOlderCharts renders the charts with what 'helm upgrade --reuse-values' keeps: the defaults of an older chart,
// which lack the newer ones.
func TestValuesOfOlderCharts(t *testing.T) {
	render := func(t *testing.T, name string, change func(values map[string]any)) map[string]string {
		t.Helper()
		c, err := loadChart(name)
		require.NoError(t, err)
		change(c.Values)
		values, err := Release{Chart: name, Namespace: DefaultNamespace, Upgrade: true}.values(c)
		require.NoError(t, err)
		texts, err := engine.Render(c, values)
		require.NoError(t, err)
		return texts
	}
	without := func(values map[string]any, names ...string) {
		for _, name := range names {
			delete(values, name)
		}
	}
	t.Run("gateway", func(t *testing.T) {
		render(t, GatewayChart, func(values map[string]any) {
			without(values, "envVarFrom", "readinessProbe", "lifecycle", "initContainers", "additionalContainers", "dnsPolicy", "dnsConfig")
			without(values["global"].(map[string]any), "networkPolicy", "platform")
		})
	})
	t.Run("CNI", func(t *testing.T) {
		render(t, CNIChart, func(values map[string]any) {
			without(values, "resourceQuotas", "env", "terminationGracePeriodSeconds")
			without(values["global"].(map[string]any), "networkPolicy", "logging", "platform")
		})
	})
	t.Run("control plane", func(t *testing.T) {
		texts := render(t, ControlPlaneChart, func(values map[string]any) {
			global := values["global"].(map[string]any)
			without(global, "platform")
			global["proxy"] = map[string]any{"image": "", "clusterDomain": "", "resources": map[string]any{}}
		})
		for name, text := range texts {
			require.NotContains(t, text, "    resources: {}\n", "%s: sidecars have the defaults of injection", name)
		}
	})
}

// TestGKE checks what Google Kubernetes Engine needs: a quota for Pods with priority classes of the system, and its folder
// of plugins.
func TestGKE(t *testing.T) {
	for name, tc := range map[string]struct {
		values, folder string
		classes        []any
	}{
		"elsewhere":          {"{}", "/opt/cni/bin", nil},
		"platform":           {"{global: {platform: gke}}", "/home/kubernetes/bin", []any{"system-node-critical"}},
		"platform and taint": {"{global: {platform: gke}, taint: {enabled: true}}", "/home/kubernetes/bin", []any{"system-node-critical", "system-cluster-critical"}},
		"quota":              {"{resourceQuotas: {enabled: true}, cniBinDir: /bin}", "/bin", []any{"system-node-critical"}},
	} {
		t.Run(name, func(t *testing.T) {
			list := rendered(t, Release{Chart: CNIChart, Values: valuesOf(t, tc.values)})
			var folder any
			volumes, _ := pick(list, "DaemonSet", "moonsail-cni-node").at("spec", "template", "spec")["volumes"].([]any)
			for _, v := range volumes {
				if o := object(v.(map[string]any)); o["name"] == "cni-bin-dir" {
					folder = o.at("hostPath")["path"]
				}
			}
			require.Equal(t, tc.folder, folder)
			scopes, _ := pick(list, "ResourceQuota", "moonsail-cni").at("spec", "scopeSelector")["matchExpressions"].([]any)
			var classes []any
			for _, s := range scopes {
				classes = append(classes, s.(map[string]any)["values"].([]any)...)
			}
			require.Equal(t, tc.classes, classes)
		})
	}
}

// TestAppArmor checks that the node agent runs unconfined, by a field or, before Kubernetes 1.30, by an annotation.
func TestAppArmor(t *testing.T) {
	for version, annotated := range map[string]bool{"v1.29.3": true, "v1.30.4-eks-a737599": false} {
		template := pick(rendered(t, Release{Chart: CNIChart, KubeVersion: version}), "DaemonSet", "moonsail-cni-node").at("spec", "template")
		_, have := template.at("metadata", "annotations")["container.apparmor.security.beta.kubernetes.io/install-cni"]
		require.Equal(t, annotated, have, version)
		require.Equal(t, !annotated, strings.Contains(fmt.Sprint(template), "appArmorProfile"), version)
	}
}

// TestPortsOfTheNetworkPolicy checks that the policy of a gateway lets in what its Service forwards.
func TestPortsOfTheNetworkPolicy(t *testing.T) {
	list := rendered(t, Release{Chart: GatewayChart, Values: valuesOf(t, "{global: {networkPolicy: {enabled: true}}, service: {ports: [{name: a, port: 80, targetPort: 8080}, {name: b, port: 443, protocol: UDP}]}}")})
	ingress, _ := pick(list, "NetworkPolicy", GatewayChart).at("spec")["ingress"].([]any)
	require.Len(t, ingress, 1)
	var got []string
	for _, p := range ingress[0].(map[string]any)["ports"].([]any) {
		p := p.(map[string]any)
		got = append(got, fmt.Sprintf("%v/%v", p["port"], p["protocol"]))
	}
	slices.Sort(got)
	require.Equal(t, []string{"15020/TCP", "15021/TCP", "15090/TCP", "443/UDP", "8080/TCP"}, got)
}

// TestMemoryLimit checks that the control plane knows its limit of memory, unless the user sets another one.
func TestMemoryLimit(t *testing.T) {
	for values, want := range map[string]any{
		"{}":                                   nil,
		"{resources: {limits: {cpu: 2}}}":      nil,
		"{resources: {limits: {memory: 1Gi}}}": map[string]any{"resourceFieldRef": map[string]any{"resource": "limits.memory", "divisor": "1"}},
		"{resources: {limits: {memory: 1Gi}}, env: {GOMEMLIMIT: 900MiB}}": "900MiB",
	} {
		t.Run(values, func(t *testing.T) {
			list := rendered(t, Release{Chart: ControlPlaneChart, Values: valuesOf(t, values)})
			containers, _ := pick(list, "Deployment", "moonsail").at("spec", "template", "spec")["containers"].([]any)
			env, _ := containers[0].(map[string]any)["env"].([]any)
			var got []any
			for _, e := range env {
				if e := e.(map[string]any); e["name"] == "GOMEMLIMIT" && e["value"] != nil {
					got = append(got, e["value"])
				} else if e["name"] == "GOMEMLIMIT" {
					got = append(got, e["valueFrom"])
				}
			}
			if want == nil {
				require.Empty(t, got)
			} else {
				require.Equal(t, []any{want}, got)
			}
		})
	}
}

// TestAnnotationsOfTags checks that the webhooks of a tag have the annotations of its revision's webhooks.
func TestAnnotationsOfTags(t *testing.T) {
	list := rendered(t, Release{Chart: ControlPlaneChart, Values: valuesOf(t, "{revisionTags: [prod], sidecarInjectorWebhookAnnotations: {admissions.enforcer/disabled: \"true\"}}")})
	for _, name := range []string{"moonsail-injector", "istio-revision-tag-prod"} {
		require.Equal(t, "true", pick(list, "MutatingWebhookConfiguration", name).at("metadata", "annotations")["admissions.enforcer/disabled"], name)
	}
}
