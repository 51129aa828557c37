package inject

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
)

func proxyConfig(ns, name string, selector map[string]string, concurrency int32, env map[string]string, image string) *model.ProxyConfig {
	p := &model.ProxyConfig{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindProxyConfig, Namespace: ns, Name: name}},
		Selector: selector, Environment: env, ImageType: image,
	}
	if concurrency >= 0 {
		p.Concurrency = &concurrency
	}
	return p
}

// TestProxyConfigs checks Istio's order of precedence, from the lowest: the mesh's defaults, the ProxyConfig of the root
// namespace, that of the namespace, the annotation, the ProxyConfig that selects the pod.
func TestProxyConfigs(t *testing.T) {
	web := map[string]string{"app": "web"}
	all := proxyConfig("istio-system", "all", nil, 3, map[string]string{"A": "root", "B": "root"}, "debug")
	own := proxyConfig("shop", "own", nil, 4, map[string]string{"B": "own", "C": "own"}, "")
	late := proxyConfig("shop", "own-later", nil, 9, nil, "")
	selecting := proxyConfig("shop", "web", web, 0, map[string]string{"C": "web", "D": "web"}, "distroless")
	for name, tc := range map[string]struct {
		said       []*model.ProxyConfig
		annotation string
		// what the pod has
		config, arg, env, image string
	}{
		"defaults":                   {nil, "", `{"concurrency":2,"drainDuration":"60s","proxyMetadata":{"A":"mesh","Z":"mesh"}}`, "", "A=mesh Z=mesh", "moonsail"},
		"of the root namespace":      {[]*model.ProxyConfig{all}, "", `"concurrency":3`, "", "A=root B=root Z=mesh", "moonsail-debug"},
		"of the namespace":           {[]*model.ProxyConfig{all, own, late}, "", `"concurrency":4`, "", "A=root B=own C=own Z=mesh", "moonsail-debug"},
		"the annotation":             {[]*model.ProxyConfig{all, own}, "concurrency: 5\nproxyMetadata: {C: pod}", `"concurrency":4`, "", "A=root B=own C=pod Z=mesh", "moonsail-debug"},
		"one that selects the pod":   {[]*model.ProxyConfig{all, own, selecting}, "concurrency: 5\nproxyMetadata: {C: pod, E: pod}", `"concurrency":4`, "--concurrency=0", "A=root B=own C=web D=web E=pod Z=mesh", "moonsail-distroless"},
		"one that selects others":    {[]*model.ProxyConfig{proxyConfig("shop", "x", map[string]string{"app": "x"}, 7, nil, "")}, "", `"concurrency":2`, "", "A=mesh Z=mesh", "moonsail"},
		"a field of a newer version": {nil, "{concurrency: 5, ofANewerVersion: 1, terminationDrainDuration: 1m}", `"concurrency":2`, "", "A=mesh Z=mesh", "moonsail"},
		"of another namespace":       {[]*model.ProxyConfig{proxyConfig("bank", "x", nil, 7, nil, "")}, "", `"concurrency":2`, "", "A=mesh Z=mesh", "moonsail"},
		"of the root, with labels":   {[]*model.ProxyConfig{proxyConfig("istio-system", "x", web, 7, nil, "")}, "", `"concurrency":2`, "", "A=mesh Z=mesh", "moonsail"},
		"0 of the namespace":         {[]*model.ProxyConfig{all, proxyConfig("shop", "own", nil, 0, nil, "")}, "", `"concurrency":0`, "", "A=root B=root Z=mesh", "moonsail-debug"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			require.NoError(t, c.Prepare())
			c.ProxyConfigs = &model.ProxyConfigs{RootNamespace: "istio-system", List: tc.said,
				Default: `{"concurrency": 2, "proxyMetadata": {"A": "mesh", "Z": "mesh"}, "ofANewerVersion": 1, "drainDuration": "1m"}`}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: web}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
			if tc.annotation != "" {
				pod.Annotations = map[string]string{annotationProxyConfig: tc.annotation}
			}
			got, err := c.Inject(pod, OwnerOf(pod))
			require.NoError(t, err)
			requireSidecar(t, got, tc.config, tc.arg, tc.env, tc.image)
		})
	}
}

// TestProxyConfigDisables checks that the Pod's annotation can switch off what the mesh's defaults switch on, and that it
// replaces lists and durations.
func TestProxyConfigDisables(t *testing.T) {
	c := Default()
	c.NativeSidecar = false
	require.NoError(t, c.Prepare())
	c.ProxyConfigs = &model.ProxyConfigs{Default: `{"holdApplicationUntilProxyStarts": true, "extraStatTags": ["a"], "drainDuration": "45s"}`}
	pod := func(annotation string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{annotationProxyConfig: annotation}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		}
	}
	for annotation, held := range map[string]bool{"": true, "holdApplicationUntilProxyStarts: false": false} {
		got, err := c.Inject(pod(annotation), Owner{})
		require.NoError(t, err)
		require.Equal(t, held, find(got.Spec.Containers, proxyContainer).Lifecycle != nil && find(got.Spec.Containers, proxyContainer).Lifecycle.PostStart != nil, annotation)
	}
	all, err := c.proxyConfigsOf(pod("extraStatTags: [b]\ndrainDuration: 0.5s"))
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, all.all.ExtraStatTags)
	require.Equal(t, 500*time.Millisecond, all.all.DrainDuration.AsDuration())
}

// TestPortsOfTheMesh checks that rules and templates use the ports of MeshConfig.
func TestPortsOfTheMesh(t *testing.T) {
	c := Default()
	c.Templates = map[string]string{"ports": "metadata: {annotations: {ports: \"{{ .MeshConfig.ProxyListenPort }} {{ .MeshConfig.ProxyInboundListenPort }}\"}}"}
	c.DefaultTemplates = append(c.DefaultTemplates, "ports")
	require.NoError(t, c.Prepare())
	outbound := uint32(16001)
	for _, tc := range []struct {
		said  *model.MeshConfig
		args  []string
		ports string
	}{
		{nil, []string{"agent", "intercept", "--interception-mode=REDIRECT"}, "15001 15006"},
		{&model.MeshConfig{OutboundPort: &outbound}, []string{"agent", "intercept", "--interception-mode=REDIRECT", "--envoy-port=16001"}, "16001 15006"},
	} {
		if tc.said != nil {
			c.ProxyConfigs = &model.ProxyConfigs{}
			c.ProxyConfigs.TakeMesh(tc.said)
		}
		got, err := c.Inject(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}, Owner{})
		require.NoError(t, err)
		require.Equal(t, tc.args, find(got.Spec.InitContainers, initContainer).Args)
		require.Equal(t, tc.ports, got.Annotations["ports"])
	}
	c.ProxyConfigs.OutboundPort = 15006
	_, err := c.Inject(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}, Owner{})
	require.ErrorContains(t, err, "15006 is also --envoy-port")
}

func requireSidecar(t *testing.T, pod *corev1.Pod, config, arg, env, image string) {
	t.Helper()
	proxy := find(pod.Spec.InitContainers, proxyContainer)
	require.Equal(t, image, proxy.Image)
	var set []string
	for _, e := range proxy.Env {
		if e.Name == "PROXY_CONFIG" {
			require.Contains(t, e.Value, config)
		}
		if len(e.Name) == 1 {
			set = append(set, e.Name+"="+e.Value)
		}
	}
	require.Equal(t, env, strings.Join(set, " "))
	given := ""
	for _, a := range proxy.Args {
		if strings.HasPrefix(a, "--concurrency") {
			given = a
		}
	}
	require.Equal(t, arg, given)
}
