package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/test/short"
)

var update = flag.Bool("update", false, "rewrite generated files")

// requireFile holds a file to its text; -update writes it.
func requireFile(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, text == string(have), "%s is out of date: run: go test ./deploy -update", file)
}

const (
	generated = "# Code generated from deploy/charts/moonsail by go test ./deploy -update; DO NOT EDIT.\n"
	namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: istio-system\n---\n"
)

// TestDefaults holds the files that show the defaults of the chart moonsail to what it renders.
func TestDefaults(t *testing.T) {
	files, err := Release{Chart: ControlPlaneChart, Namespace: DefaultNamespace, Values: map[string]any{"image": "moonsail:latest"}}.Render()
	require.NoError(t, err)
	written := 0
	for _, f := range files {
		text := string(f.Text)
		if f.Name == "rbac.yaml" {
			text = namespace + text
		}
		for _, name := range manifestOrder {
			if f.Name == name {
				requireFile(t, name, generated+text)
				written++
			}
		}
	}
	require.Len(t, manifestOrder, written)
}

// TestCopies holds files of the charts to what they are copies of.
func TestCopies(t *testing.T) {
	alerts, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	requireFile(t, "charts/moonsail/files/alerts.yaml", string(alerts))

	read := func(file string) string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	dir := func(module string) string {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	requireFile(t, "charts/base/files/istio.yaml", read(filepath.Join(dir("istio.io/api"), "kubernetes", "customresourcedefinitions.gen.yaml")))
	crds, err := filepath.Glob(filepath.Join(dir("sigs.k8s.io/gateway-api"), "config", "crd", "standard", "gateway.networking.k8s.io_*s.yaml"))
	require.NoError(t, err)
	copied, err := filepath.Glob("charts/base/files/gateway-api/*.yaml")
	require.NoError(t, err)
	n := 0
	for _, file := range crds {
		if text := read(file); strings.Contains(text, "kind: CustomResourceDefinition") {
			requireFile(t, filepath.Join("charts/base/files/gateway-api", strings.TrimPrefix(filepath.Base(file), "gateway.networking.k8s.io_")), text)
			n++
		}
	}
	require.Len(t, copied, n, "a resource definition is gone: remove its copy")
}

// TestLint checks the charts as 'helm lint' does.
func TestLint(t *testing.T) {
	for _, name := range allCharts {
		t.Run(name, func(t *testing.T) {
			kube, err := chartutil.ParseKubeVersion(KubeVersion)
			require.NoError(t, err)
			for _, m := range lint.AllWithKubeVersion(filepath.Join("charts", name), nil, DefaultNamespace, kube).Messages {
				if m.Severity >= support.WarningSev {
					t.Errorf("%s", m)
				}
			}
		})
	}
}

// TestEveryValue renders each chart with each documented value set to another than its default. Each must change an
// object, and the result must be valid.
func TestEveryValue(t *testing.T) {
	for _, name := range allCharts {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".values.yaml"))
			require.NoError(t, err)
			var cases map[string]any // dotted name -> value, or a map of values if others are needed with it
			require.NoError(t, yaml.Unmarshal(text, &cases))
			chart, err := loadChart(name)
			require.NoError(t, err)
			defaults, err := Release{Chart: name, Namespace: DefaultNamespace}.Render()
			require.NoError(t, err)
			for _, value := range leaves("", chart.Values) {
				require.Contains(t, cases, value, "add a value to testdata/%s.values.yaml", name)
			}
			for _, value := range short.Sample(slices.Sorted(maps.Keys(cases))) {
				t.Run(value, func(t *testing.T) { requireEffect(t, name, value, cases[value], defaults) })
			}
		})
	}
}

// requireEffect sets one value and what it needs.
func requireEffect(t *testing.T, chart, value string, to any, defaults []Rendered) {
	values := map[string]any{}
	set := func(name string, to any) {
		at := values
		parts := strings.Split(name, ".")
		for _, p := range parts[:len(parts)-1] {
			if at[p] == nil {
				at[p] = map[string]any{}
			}
			at = at[p].(map[string]any)
		}
		at[parts[len(parts)-1]] = to
	}
	base := defaults
	if m, ok := to.(map[string]any); ok && m["with"] != nil {
		for other, v := range m["with"].(map[string]any) {
			set(other, v)
		}
		var err error
		base, err = Release{Chart: chart, Namespace: DefaultNamespace, Values: values}.Render()
		require.NoError(t, err)
		to = m["set"]
	}
	set(value, to)
	r := Release{Chart: chart, Namespace: DefaultNamespace, Values: values}
	objects, err := r.Objects()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, o := range objects {
		require.NotEmpty(t, o.GetKind())
		require.NotEmpty(t, o.GetName())
		require.False(t, seen[o.GetKind()+o.GetName()], "%s %s twice", o.GetKind(), o.GetName())
		seen[o.GetKind()+o.GetName()] = true
	}
	files, err := r.Render()
	require.NoError(t, err)
	require.NotEqual(t, texts(base), texts(files), "it has no effect")
	for _, f := range files {
		if f.Name == "crds.yaml" { // large, and Objects has read it
			continue
		}
		for doc := range bytes.SplitSeq(f.Text, []byte(separator)) {
			var o map[string]any
			require.NoError(t, yaml.UnmarshalStrict(doc, &o), "%s", doc)
		}
	}
}

func texts(files []Rendered) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s\n%s", f.Name, f.Text)
	}
	return b.String()
}

// leaves returns the dotted names of all values. An empty map is a value.
func leaves(prefix string, values map[string]any) []string {
	var out []string
	for k, v := range values {
		m, ok := v.(map[string]any)
		if ok && len(m) > 0 && !wholes[prefix+k] {
			out = append(out, leaves(prefix+k+".", m)...)
		} else {
			out = append(out, prefix+k)
		}
	}
	return out
}

// wholes are maps that users write as they are in Kubernetes.
var wholes = map[string]bool{
	"resources": true, "securityContext": true, "containerSecurityContext": true, "seccompProfile": true, "podAnnotations": true, "updateStrategy": true,
	"global.proxy.resources": true,
}

func TestWrongValues(t *testing.T) {
	for want, values := range map[string]map[string]any{
		"replicaCont":        {"replicaCont": 3},
		"at '/replicaCount'": {"replicaCount": "three"},
		"at '/revision'":     {"revision": "A"},
		"revision: view: moonsail-view is the name of another object":                         {"revision": "view"},
		"revision: authorities: moonsail-authorities is the name of another object":           {"revision": "authorities"},
		"revision: authorities-blue: moonsail-authorities-blue is the name of another object": {"revision": "authorities-blue"},
		"revision: credentials-blue: moonsail-credentials-blue is the name of another object": {"revision": "credentials-blue"},
		"revision: tag-prod: moonsail-tag-prod is the name of another object":                 {"revision": "tag-prod"},
		"at '/global/proxy'":     {"global": map[string]any{"proxy": map[string]any{"logLevel": "debug"}}},
		"at '/image'":            {"image": "a\nkind: Secret"},
		"at '/revisionTags/0'":   {"revisionTags": []any{""}},
		"moonsail/values.yaml":   {"nothing": true},
		"at '/validatingWebhook": {"validatingWebhook": map[string]any{"failurePolicy": "Never"}},
	} {
		_, err := Release{Chart: ControlPlaneChart, Namespace: DefaultNamespace, Values: values}.Render()
		require.ErrorContains(t, err, want)
	}
	_, err := Release{Chart: ControlPlaneChart, Namespace: DefaultNamespace, KubeVersion: "v1.20.1"}.Render()
	require.ErrorContains(t, err, "Kubernetes v1.20.1 is not supported")
}

// TestKubeVersions checks that the charts accept the versions of providers' clusters.
func TestKubeVersions(t *testing.T) {
	for _, version := range []string{"v1.29.3-gke.1286000", "v1.30.4-eks-a737599", "v1.31.2+k3s1", "1.36"} {
		_, err := Release{Chart: ControlPlaneChart, Namespace: DefaultNamespace, KubeVersion: version}.Render()
		require.NoError(t, err, version)
	}
}

func TestOrder(t *testing.T) {
	var list []*unstructured.Unstructured
	for _, kind := range []string{"MutatingWebhookConfiguration", "Deployment", "ServiceMonitor", "ValidatingWebhookConfiguration", "Role", "CustomResourceDefinition", "Namespace"} {
		o := &unstructured.Unstructured{}
		o.SetKind(kind)
		list = append(list, o)
	}
	SortForInstall(list)
	var kinds []string
	for _, o := range list {
		kinds = append(kinds, o.GetKind())
	}
	require.Equal(t, []string{"Namespace", "CustomResourceDefinition", "Role", "Deployment", "ServiceMonitor", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}, kinds)
}

func TestValues(t *testing.T) {
	v, err := Values([][]byte{[]byte("a: 1\nb: {c: 2, d: 3}\n"), []byte("b: {c: 4}\n")}, []string{"b.e=5,f=g", "h[0]=i"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": 1.0, "b": map[string]any{"c": 4.0, "d": 3.0, "e": int64(5)}, "f": "g", "h": []any{"i"}}, v)
	_, err = Values(nil, []string{"a"})
	require.ErrorContains(t, err, "--set a")
}

// clusterOfHelm is the cluster that Helm's function lookup reads.
type clusterOfHelm struct{ dynamic.Interface }

func (c clusterOfHelm) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return c.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")), true, nil
}

// TestHelmKeepsReplicas checks that Helm keeps the number of replicas that runs when an autoscaler decides it. Without a number in
// the chart, Helm would remove it, and one replica would remain.
func TestHelmKeepsReplicas(t *testing.T) {
	five := int32(5)
	live := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &five}}
	live.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	live.Name, live.Namespace = "moonsail", DefaultNamespace
	scheme := runtime.NewScheme()
	require.NoError(t, appsv1.AddToScheme(scheme))
	for _, row := range []struct {
		chart, template, want string
		Release
	}{
		{ControlPlaneChart, "moonsail/templates/control-plane.yaml", "\n  replicas: 5\n", Release{Namespace: DefaultNamespace, Values: map[string]any{"autoscaleEnabled": true}}},
		{ControlPlaneChart, "moonsail/templates/control-plane.yaml", "\n  replicas: 2\n", Release{Namespace: DefaultNamespace}},
		{ControlPlaneChart, "moonsail/templates/control-plane.yaml", "spec:\n  selector", Release{Namespace: "other", Values: map[string]any{"autoscaleEnabled": true}}},
		{GatewayChart, "gateway/templates/workload.yaml", "\n  replicas: 5\n", Release{Name: "moonsail", Namespace: DefaultNamespace, Values: map[string]any{"autoscaling": map[string]any{"enabled": true}}}},
		{GatewayChart, "gateway/templates/workload.yaml", "\n  replicas: 5\n", Release{Name: "moonsail", Namespace: DefaultNamespace, Values: map[string]any{"autoscaling": map[string]any{"enabled": false}}}},
		{GatewayChart, "gateway/templates/workload.yaml", "spec:\n  selector", Release{Name: "moonsail", Namespace: "other", Values: map[string]any{"autoscaling": map[string]any{"enabled": false}}}},
		{GatewayChart, "gateway/templates/workload.yaml", "\n  replicas: 3\n", Release{Name: "moonsail", Namespace: DefaultNamespace, Values: map[string]any{"replicaCount": 3, "autoscaling": map[string]any{"enabled": false}}}},
	} {
		chart, err := loadChart(row.chart)
		require.NoError(t, err)
		values, err := row.values(chart)
		require.NoError(t, err)
		files, err := engine.RenderWithClientProvider(chart, values, clusterOfHelm{fake.NewSimpleDynamicClient(scheme, live)})
		require.NoError(t, err)
		require.Contains(t, files[row.template], row.want)
	}
}

// TestNumbersOfValuesFiles checks that numbers of values files, which are read as floating-point numbers, are written as they are.
func TestNumbersOfValuesFiles(t *testing.T) {
	for chart, c := range map[string]struct {
		file string
		want []string
	}{
		ControlPlaneChart: {
			"tag: 20261127\nenv: {GOMEMLIMIT: 1073741824, SHARE: 0.5, FLAG: true, TEXT: \"1\"}\npdb: {minAvailable: 0}\n",
			[]string{`"image":"moonsail:20261127"`, `"name":"GOMEMLIMIT","value":"1073741824"`, `"name":"SHARE","value":"0.5"`, `"name":"FLAG","value":"true"`, `"name":"TEXT","value":"1"`, `"minAvailable":0`},
		},
		GatewayChart: {"env: {BIG: 3000000}\n", []string{`"name":"BIG","value":"3000000"`}},
	} {
		t.Run(chart, func(t *testing.T) {
			values, err := Values([][]byte{[]byte(c.file)}, nil)
			require.NoError(t, err)
			text, err := Release{Chart: chart, Namespace: DefaultNamespace, Values: values}.Manifest()
			require.NoError(t, err)
			require.NotRegexp(t, `[0-9]e\+[0-9]`, string(text))
			objects, err := Decode(text)
			require.NoError(t, err)
			text, err = json.Marshal(objects)
			require.NoError(t, err)
			for _, want := range c.want {
				require.Contains(t, string(text), want)
			}
		})
	}
}
