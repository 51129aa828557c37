package inject

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
)

// TestHoldUntilDrained checks which containers get a preStop hook at the agent, and that another injection without hooks
// restores their own.
func TestHoldUntilDrained(t *testing.T) {
	held := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/app-lifecycle/app/prestopz", Port: intstr.FromInt32(defaultStatus)}}
	keyed := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/app-lifecycle/app/prestopz/key", Port: intstr.FromInt32(defaultStatus)}}
	exec := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"stop"}}}
	http := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/stop", Port: intstr.FromInt32(8080)}}
	for _, tc := range []struct {
		name      string
		own, want *corev1.LifecycleHandler
		agentRuns string // appprobe.ProbersVariable
		annotate  map[string]string
	}{
		{name: "no hook", want: held},
		{name: "sleep", own: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}}, want: held,
			agentRuns: `{"/app-lifecycle/app/prestopz":{"sleep":{"seconds":7}}}`},
		{name: "HTTP", own: http, want: keyed, agentRuns: `{"/app-lifecycle/app/prestopz/key":{"httpGet":{"path":"/stop","port":8080}}}`},
		{name: "HTTP that is not rewritten", own: http, want: http, annotate: map[string]string{annotationRewrite: "false"}},
		{name: "command", own: exec, want: exec},
		{name: "disabled", annotate: map[string]string{annotationHoldUntilDrained: "false"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Name, p.Annotations = "p", tc.annotate
			p.Spec.Containers = []corev1.Container{{Name: "app"}}
			if tc.own != nil {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: tc.own}
			}
			before := p.DeepCopy()
			c := Default()
			c.HookKey = func() string { return "key" }
			once, err := c.Inject(p, OwnerOf(p))
			require.NoError(t, err)
			require.Equal(t, before, p)
			got := find(once.Spec.Containers, "app").Lifecycle
			if tc.want == nil {
				require.Nil(t, got)
			} else {
				require.Equal(t, tc.want, got.PreStop)
			}
			require.Equal(t, tc.agentRuns, valueOf(sidecarOf(once), appprobe.ProbersVariable))

			restored, err := restore(once)
			require.NoError(t, err)
			require.Equal(t, before.Spec.Containers, restored.Spec.Containers)
		})
	}
}

// TestHoldsOnlyWithTheBuiltInSidecar checks that a sidecar of another image gets no hook that its agent may not know.
func TestHoldsOnlyWithTheBuiltInSidecar(t *testing.T) {
	c, err := Load([]byte("templates: {sidecar: 'spec: {containers: [{name: istio-proxy, image: other}]}'}"))
	require.NoError(t, err)
	p := &corev1.Pod{}
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	injected, err := c.Inject(p, OwnerOf(p))
	require.NoError(t, err)
	require.Nil(t, find(injected.Spec.Containers, "app").Lifecycle)
}

// TestClassicSidecarsDrainInFull checks that Envoy of a classic sidecar, which ends beside its application, does not end early, unless
// users choose that.
func TestClassicSidecarsDrainInFull(t *testing.T) {
	const early = "proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: \"true\"}"
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        []string // values of the variable
	}{
		"native":                  {nil, nil},
		"native that ends early":  {map[string]string{annotationProxyConfig: early}, []string{"true"}},
		"classic":                 {map[string]string{annotationNative: "false"}, []string{"false"}},
		"classic that ends early": {map[string]string{annotationNative: "false", annotationProxyConfig: early}, []string{"true"}},
		"gateway":                 {map[string]string{annotationTemplates: GatewayTemplate}, nil},
		"sidecar and gateway":     {map[string]string{annotationTemplates: "sidecar,gateway"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Annotations = tc.annotations
			p.Spec.Containers = []corev1.Container{{Name: "app"}}
			injected, err := Default().Inject(p, OwnerOf(p))
			require.NoError(t, err)
			var got []string
			for _, e := range sidecarOf(injected).Env {
				if e.Name == "EXIT_ON_ZERO_ACTIVE_CONNECTIONS" {
					got = append(got, e.Value)
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func valueOf(c *corev1.Container, variable string) string {
	for _, e := range c.Env {
		if e.Name == variable {
			return e.Value
		}
	}
	return ""
}

// TestHookKeys checks that paths of hooks cannot be guessed, and that another injection keeps them.
func TestHookKeys(t *testing.T) {
	p := &corev1.Pod{}
	stop := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/stop", Port: intstr.FromInt32(8080)}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Lifecycle: &corev1.Lifecycle{PreStop: stop, PostStart: stop}}}
	paths := map[string]bool{}
	for range 2 {
		once, err := Default().Inject(p, OwnerOf(p))
		require.NoError(t, err)
		hooks := find(once.Spec.Containers, "app").Lifecycle
		require.Regexp(t, `^/app-lifecycle/app/prestopz/[a-z0-9]{26}$`, hooks.PreStop.HTTPGet.Path)
		require.Regexp(t, `^/app-lifecycle/app/poststartz/[a-z0-9]{26}$`, hooks.PostStart.HTTPGet.Path)
		require.False(t, paths[hooks.PreStop.HTTPGet.Path])
		paths[hooks.PreStop.HTTPGet.Path] = true
		twice, err := Default().Inject(once, OwnerOf(once))
		require.NoError(t, err)
		require.Equal(t, once, twice)
	}
}
