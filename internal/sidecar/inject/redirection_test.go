package inject

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// withCNI is a configuration whose Pods need a CNI plugin.
func withCNI(t *testing.T) *Config {
	t.Helper()
	c, err := Load([]byte("cni: {enabled: true}"))
	require.NoError(t, err)
	return c
}

func injectedPod(t *testing.T, c *Config, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.Annotations, p.Labels = "shop", "cart", map[string]string{}, map[string]string{}
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	change(p)
	out, err := c.Inject(p, OwnerOf(p))
	require.NoError(t, err)
	return out
}

// TestPluginAndInitContainerAgree checks that the rules of a CNI plugin have the settings that the init container would
// have: for each annotation, and for settings of the mesh.
func TestPluginAndInitContainerAgree(t *testing.T) {
	annotated := func(name, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[name] = value }
	}
	const traffic = "traffic.sidecar.istio.io/"
	for name, change := range map[string]func(*corev1.Pod){
		"default":                 func(*corev1.Pod) {},
		"mode":                    annotated("sidecar.istio.io/interceptionMode", "TPROXY"),
		"includeInboundPorts":     annotated(traffic+"includeInboundPorts", "80,81"),
		"no inbound ports":        annotated(traffic+"includeInboundPorts", ""),
		"excludeInboundPorts":     annotated(traffic+"excludeInboundPorts", "9091"),
		"includeOutboundIPRanges": annotated(traffic+"includeOutboundIPRanges", "10.0.0.0/8"),
		"excludeOutboundIPRanges": annotated(traffic+"excludeOutboundIPRanges", "10.1.0.0/16"),
		"includeOutboundPorts":    annotated(traffic+"includeOutboundPorts", "3306"),
		"excludeOutboundPorts":    annotated(traffic+"excludeOutboundPorts", "22"),
		"excludeInterfaces":       annotated(traffic+"excludeInterfaces", "net1"),
		"kubevirtInterfaces":      annotated(traffic+"kubevirtInterfaces", "k6t-eth0"),
		"virtual interfaces":      annotated("istio.io/reroute-virtual-interfaces", "k6t-eth0"),
		"status port":             annotated(annotationStatusPort, "16020"),
		"status port and others": func(p *corev1.Pod) {
			p.Annotations[annotationStatusPort], p.Annotations[traffic+"excludeInboundPorts"] = "16020", "9091"
		},
		"proxyMetadata": annotated(annotationProxyConfig, "proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\", INVALID_DROP: \"true\"}"),
		"another user": func(p *corev1.Pod) {
			user, group := int64(2000), int64(3000)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: proxyContainer, Image: autoImage,
				SecurityContext: &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &group}})
		},
		"ordinary sidecar": annotated(annotationNative, "false"),
	} {
		t.Run(name, func(t *testing.T) {
			mesh := model.ProxyConfigs{OutboundPort: 16001, InboundPort: 16006}
			with, without := withCNI(t), Default()
			with.ProxyConfigs, without.ProxyConfigs = &mesh, &mesh
			want := intercept.Default()
			initial := find(injectedPod(t, without, change).Spec.InitContainers, initContainer)
			for _, row := range intercept.List() {
				if v := envOf(initial, row.Env); v != "" {
					*row.Value(&want) = v
				}
			}
			setArgs(&want, initial.Args)

			got, err := RedirectionOf(injectedPod(t, with, change))
			require.NoError(t, err)
			require.Equal(t, Redirection{Redirect: true, Settings: want}, got)
		})
	}
}

// TestPodsOfIstiod checks the settings of a Pod that istiod has injected.
func TestPodsOfIstiod(t *testing.T) {
	p := &corev1.Pod{}
	p.Annotations = map[string]string{
		annotationStatus: "{}", annotationMode: "REDIRECT",
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "*", "traffic.sidecar.istio.io/includeInboundPorts": "*",
		"traffic.sidecar.istio.io/excludeInboundPorts": "15020,9091",
	}
	p.Spec.InitContainers = []corev1.Container{
		{Name: validationContainer, Args: []string{"istio-iptables", "-p", "16001", "-z", "16006", "-u", "1337", "-m", "REDIRECT", "--run-validation", "--skip-rule-apply"}},
		{Name: proxyContainer, Args: []string{"proxy", "sidecar"}, Env: []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"}}},
	}
	want := intercept.Default()
	want.OutboundPort, want.InboundPort, want.ExcludeInboundPorts, want.CaptureDNS = "16001", "16006", "15020,9091", "true"
	got, err := RedirectionOf(p)
	require.NoError(t, err)
	require.Equal(t, Redirection{Redirect: true, Settings: want}, got)
}

// TestNotRedirected checks which Pods get no rules, and why.
func TestNotRedirected(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		why    string
	}{
		"no sidecar":     {func(p *corev1.Pod) { *p = corev1.Pod{} }, "no container istio-proxy"},
		"init container": {func(p *corev1.Pod) { p.Spec.InitContainers[0].Name = initContainer }, "istio-init sets the rules"},
		"label":          {func(p *corev1.Pod) { p.Labels[labelInject] = "false" }, "its label sidecar.istio.io/inject is false"},
		"annotation":     {func(p *corev1.Pod) { p.Annotations[annotationInject] = "0" }, "its annotation sidecar.istio.io/inject is 0"},
		"not injected":   {func(p *corev1.Pod) { delete(p.Annotations, annotationStatus) }, "no annotation sidecar.istio.io/status"},
		"host network":   {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "the host's network"},
		"mode NONE": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Args = []string{"agent", "intercept", "--interception-mode=NONE"}
		}, "NONE"},
		"gateway":           {func(p *corev1.Pod) { sidecarOf(p).Args = append(sidecarOf(p).Args, routerFlag) }, "gateway"},
		"Istio's gateway":   {func(p *corev1.Pod) { sidecarOf(p).Args = []string{"proxy", "router", "--domain", "x"} }, "gateway"},
		"disabled by Istio": {func(p *corev1.Pod) { sidecarOf(p).Env = []corev1.EnvVar{{Name: "DISABLE_ENVOY", Value: "true"}} }, "DISABLE_ENVOY"},
	} {
		t.Run(name, func(t *testing.T) {
			p := injectedPod(t, withCNI(t), func(*corev1.Pod) {})
			got, err := RedirectionOf(p)
			require.NoError(t, err)
			require.True(t, got.Redirect)
			tc.change(p)
			got, err = RedirectionOf(p)
			require.NoError(t, err)
			require.False(t, got.Redirect)
			require.Contains(t, got.Why, tc.why)
		})
	}
}

// TestInvalidAnnotationOfRunningPod checks that the error names an annotation that was changed after the injection.
func TestInvalidAnnotationOfRunningPod(t *testing.T) {
	p := injectedPod(t, withCNI(t), func(*corev1.Pod) {})
	p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "ssh"
	_, err := RedirectionOf(p)
	require.ErrorContains(t, err, "traffic.sidecar.istio.io/excludeOutboundPorts")
}
