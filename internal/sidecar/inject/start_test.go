package inject

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
)

func httpHandler() *corev1.HTTPGetAction {
	return &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}
}

func httpProbe() *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: httpHandler()}}
}

// TestHandlersThatPrecedeTheSidecar checks that a restartable init container, which must have started before a classic sidecar
// starts, does not wait for the agent.
func TestHandlersThatPrecedeTheSidecar(t *testing.T) {
	for native, leadsToAgent := range map[string]bool{"true": true, "false": false} {
		t.Run("native "+native, func(t *testing.T) {
			always := corev1.ContainerRestartPolicyAlways
			p := &corev1.Pod{}
			p.Annotations = map[string]string{annotationNative: native}
			p.Spec.InitContainers = []corev1.Container{{Name: "early", RestartPolicy: &always,
				StartupProbe: httpProbe(), ReadinessProbe: httpProbe(), LivenessProbe: httpProbe(),
				Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: httpHandler()}}}}
			injected, err := Default().Inject(p, OwnerOf(p))
			require.NoError(t, err)
			toAgent := func(a *corev1.HTTPGetAction) bool { return a.Port.IntVal == defaultStatus }
			c := find(injected.Spec.InitContainers, "early")
			require.Equal(t, leadsToAgent, toAgent(c.StartupProbe.HTTPGet))
			require.Equal(t, leadsToAgent, toAgent(c.Lifecycle.PostStart.HTTPGet))
			require.True(t, toAgent(c.ReadinessProbe.HTTPGet), "it may be answered later")
			require.True(t, toAgent(c.LivenessProbe.HTTPGet), "it lasts as long as the container")
			restored, err := restore(injected)
			require.NoError(t, err)
			require.Equal(t, p.Spec.InitContainers, restored.Spec.InitContainers)
		})
	}
}

// TestProtocolsOfProbes checks that the kubelet probes the agent by HTTP/1.1, which is all that the agent serves, and that the agent
// knows the protocols of the application.
func TestProtocolsOfProbes(t *testing.T) {
	http2, secure := corev1.HTTPProtocolHTTP2, corev1.GRPCProbeModeTLS
	get := httpHandler()
	get.Protocol = &http2
	p := &corev1.Pod{}
	p.Spec.Containers = []corev1.Container{{Name: "app",
		LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 8080, Mode: &secure}}},
	}}
	injected, err := Default().Inject(p, OwnerOf(p))
	require.NoError(t, err)
	c := find(injected.Spec.Containers, "app")
	require.Nil(t, c.LivenessProbe.HTTPGet.Protocol)
	require.NotNil(t, c.ReadinessProbe.HTTPGet)
	require.JSONEq(t, `{
		"/app-health/app/livez": {"httpGet": {"path": "/", "port": 8080, "protocol": "HTTP2"}},
		"/app-health/app/readyz": {"grpc": {"port": 8080, "service": null, "mode": "TLS"}}
	}`, valueOf(sidecarOf(injected), appprobe.ProbersVariable))
	restored, err := restore(injected)
	require.NoError(t, err)
	require.Equal(t, p.Spec.Containers, restored.Spec.Containers)
}

// TestOwners checks the workload whose name metrics have.
func TestOwners(t *testing.T) {
	yes := true
	for _, test := range []struct {
		owner      metav1.OwnerReference
		name, path string
	}{
		{metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-abc"}, "web", "argoproj.io/v1alpha1/namespaces/shop/rollouts/web"},
		{metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "web-29012345"}, "web", "batch/v1/namespaces/shop/cronjobs/web"},
	} {
		t.Run(test.owner.Kind, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "web-abc-", Labels: map[string]string{"rollouts-pod-template-hash": "abc"}}}
			test.owner.Controller = &yes
			p.OwnerReferences = []metav1.OwnerReference{test.owner}
			injected, err := Default().Inject(p, OwnerOf(p))
			require.NoError(t, err)
			require.Equal(t, test.name, valueOf(sidecarOf(injected), "ISTIO_META_WORKLOAD_NAME"))
			require.Equal(t, "kubernetes://apis/"+test.path, valueOf(sidecarOf(injected), "ISTIO_META_OWNER"))
			require.Equal(t, test.name, injected.Labels["service.istio.io/canonical-name"])
		})
	}
}

// TestPodPorts checks that the sidecar knows the ports of all containers that keep running, and no others.
func TestPodPorts(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	ports := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number}}
	}
	p := &corev1.Pod{}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "once", Ports: ports("once", 1)}, {Name: "front", RestartPolicy: &always, Ports: ports("front", 8080)},
	}
	p.Spec.Containers = []corev1.Container{{Name: "app", Ports: ports("http", 9080)}}
	for range 2 { // the sidecar's own ports do not count
		injected, err := Default().Inject(p, OwnerOf(p))
		require.NoError(t, err)
		require.JSONEq(t, `[{"name": "http", "containerPort": 9080}, {"name": "front", "containerPort": 8080}]`,
			valueOf(sidecarOf(injected), "ISTIO_META_POD_PORTS"))
		p = injected
	}
}

// TestHooksAtTheStartOfApplications checks that the sidecar runs when the kubelet calls a postStart hook of an application,
// which it does before it starts the next container.
func TestHooksAtTheStartOfApplications(t *testing.T) {
	web := &corev1.LifecycleHandler{HTTPGet: httpHandler()}
	for name, tc := range map[string]struct {
		hook        *corev1.LifecycleHandler
		annotations map[string]string
		first       bool
	}{
		"none":          {nil, nil, false},
		"HTTP":          {web, nil, true},
		"TCP":           {&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, nil, true},
		"command":       {&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"start"}}}, nil, false},
		"not rewritten": {web, map[string]string{annotationRewrite: "false"}, false},
		"not wanted":    {web, map[string]string{annotationProxyConfig: "holdApplicationUntilProxyStarts: false"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Annotations = tc.annotations
			app := corev1.Container{Name: "app"}
			if tc.hook != nil {
				app.Lifecycle = &corev1.Lifecycle{PostStart: tc.hook}
			}
			p.Spec.Containers = []corev1.Container{app, {Name: "other"}}
			c := Default()
			c.NativeSidecar = false
			injected, err := c.Inject(p, OwnerOf(p))
			require.NoError(t, err)
			var order []string
			for _, c := range injected.Spec.Containers {
				order = append(order, c.Name)
			}
			if tc.first {
				require.Equal(t, []string{proxyContainer, "app", "other"}, order)
				require.Equal(t, command("agent", "wait"), sidecarOf(injected).Lifecycle.PostStart)
			} else {
				require.Equal(t, []string{"app", "other", proxyContainer}, order)
				require.Nil(t, sidecarOf(injected).Lifecycle)
			}
		})
	}
}

// TestStartupProbe checks that the kubelet asks a sidecar each second whether it has started, as in Istio. Its readiness probe
// alone would find that out up to 15 s later.
func TestStartupProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"native":                     {map[string]string{annotationNative: "true"}, true},
		"classic":                    {map[string]string{annotationNative: "false"}, true},
		"native without a probe":     {map[string]string{annotationNative: "true", annotationStatusPort: "0"}, true},
		"classic without a probe":    {map[string]string{annotationNative: "false", annotationStatusPort: "0"}, false},
		"classic, application waits": {map[string]string{annotationNative: "false", annotationProxyConfig: "holdApplicationUntilProxyStarts: true"}, true},
		"gateway":                    {map[string]string{annotationTemplates: GatewayTemplate}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Annotations = tc.annotations
			injected, err := Default().Inject(p, OwnerOf(p))
			require.NoError(t, err)
			probe := sidecarOf(injected).StartupProbe
			if !tc.want {
				require.Nil(t, probe)
				return
			}
			require.Equal(t, "/healthz/ready", probe.HTTPGet.Path)
			require.EqualValues(t, 1, probe.PeriodSeconds)
			require.Zero(t, probe.InitialDelaySeconds)
		})
	}
}
