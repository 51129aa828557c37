package gatewaydeploy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

var updateGolden = flag.Bool("update", false, "write the results to testdata")

// rendered renders the Gateway of a file with the ConfigMaps of the file, and returns the objects or the error as text.
func rendered(t *testing.T, files []txtar.File) string {
	t.Helper()
	config, overlays := inject.Default(), []overlay(nil)
	var g *gateway
	for _, f := range files {
		switch f.Name {
		case "gateway.yaml":
			o := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal(f.Data, &o.Object))
			var err error
			g, err = readGateway(o)
			require.NoError(t, err)
		case "injection.yaml":
			var err error
			config, err = inject.Load(f.Data)
			require.NoError(t, err)
		default:
			m := &corev1.ConfigMap{}
			require.NoError(t, yaml.UnmarshalStrict(f.Data, m))
			overlays = append(overlays, overlayOf(m))
		}
	}
	require.NoError(t, config.Prepare())
	text, err := renderedText(g, config, overlays)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return text
}

func renderedText(g *gateway, config *inject.Config, overlays []overlay) (string, error) {
	for i := range overlays {
		if err := overlays[i].check(); err != nil {
			return "", err
		}
	}
	p, err := planOf(g, g.Spec.Listeners)
	if err != nil {
		return "", err
	}
	objects, err := p.render(config, overlays)
	if err != nil {
		return "", err
	}
	var out []string
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return "", err
		}
		out = append(out, string(text))
	}
	return strings.Join(out, "---\n"), nil
}

// TestRender renders the Gateway of each testdata/*.txtar.
func TestRender(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			input, want := a.Files, ""
			if last := len(a.Files) - 1; a.Files[last].Name == "objects" {
				input, want = a.Files[:last], string(a.Files[last].Data)
			}
			got := rendered(t, input)
			if *updateGolden {
				a.Files = append(input, txtar.File{Name: "objects", Data: []byte(got)})
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
				return
			}
			require.Equal(t, want, got)
		})
	}
}

// TestDeployed checks which Gateways get Deployments.
func TestDeployed(t *testing.T) {
	for _, c := range []struct {
		spec string
		want bool
	}{
		{"gatewayClassName: istio", true},
		{"gatewayClassName: moonsail", true},
		{"gatewayClassName: istio-waypoint", false},
		{"gatewayClassName: other", false},
		{"{gatewayClassName: istio, addresses: [{value: 192.0.2.1}]}", true},
		{"{gatewayClassName: istio, addresses: [{type: IPAddress, value: 192.0.2.1}]}", true},
		{"{gatewayClassName: istio, addresses: [{type: Hostname, value: ingress.example.com}]}", false},
		{"{gatewayClassName: istio, addresses: [{value: 192.0.2.1}, {value: 192.0.2.2}]}", false},
	} {
		g := &gateway{}
		require.NoError(t, yaml.Unmarshal([]byte(c.spec), &g.Spec))
		require.Equal(t, c.want, g.deployed(), c.spec)
	}
}

// TestOtherControllers checks which Gateways are left to others.
func TestOtherControllers(t *testing.T) {
	for _, c := range []struct {
		revision, label, version string
		want                     bool
	}{
		{"default", "", "", true},
		{"default", "default", "5", true},
		{"default", "canary", "", false},
		{"canary", "canary", "", true},
		{"", "canary", "", true},
		{"default", "", "6", false},
		{"default", "", "next", false},
	} {
		g := &gateway{}
		g.Labels, g.Annotations = map[string]string{}, map[string]string{}
		if c.label != "" {
			g.Labels["istio.io/rev"] = c.label
		}
		if c.version != "" {
			g.Annotations["gateway.istio.io/controller-version"] = c.version
		}
		require.Equal(t, c.want, (&Controller{Revision: c.revision}).handles(g), "%+v", c)
	}
}

// TestEntriesOfListsAreDistinct checks that no list has an entry twice, which server-side apply refuses.
func TestEntriesOfListsAreDistinct(t *testing.T) {
	g := &gateway{}
	g.Name, g.Namespace, g.Spec.GatewayClassName = "web", "shop", "istio"
	config := inject.Default()
	require.NoError(t, config.Prepare())
	p, err := planOf(g, g.Spec.Listeners)
	require.NoError(t, err)
	pod, err := p.pod(config)
	require.NoError(t, err)
	require.Len(t, pod.Spec.Containers, 1)
	names := map[string]bool{}
	for _, e := range pod.Spec.Containers[0].Env {
		require.False(t, names[e.Name], e.Name)
		names[e.Name] = true
	}
	ports := map[int32]bool{}
	for _, p := range pod.Spec.Containers[0].Ports {
		require.False(t, ports[p.ContainerPort])
		ports[p.ContainerPort] = true
	}
}
