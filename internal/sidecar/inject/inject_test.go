package inject

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the results to testdata")

// configFor is testdata's configuration for an input, or the default.
func configFor(t *testing.T, input string) *Config {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(input, ".yaml") + ".config")
	if os.IsNotExist(err) {
		text, err = []byte("image: moonsail:test\n"), nil
	}
	require.NoError(t, err)
	c, err := Load(text)
	require.NoError(t, err)
	c.HookKey = func() string { return "key" }
	return c
}

func inputs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func inject(t *testing.T, c *Config, text []byte) (out string, skipped []string) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, c.File(bytes.NewReader(text), &b, func(o, why string) { skipped = append(skipped, o+": "+strings.TrimPrefix(why, "no sidecar: ")) }))
	return b.String(), skipped
}

func TestFiles(t *testing.T) {
	for _, file := range inputs(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got, skipped := inject(t, configFor(t, file), text)
			for _, s := range skipped {
				got += "# skipped: " + s + "\n"
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644)) //nolint:gosec // test data
				return
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// TestInjectsOnce checks that a second injection changes nothing, also after one with another configuration.
func TestInjectsOnce(t *testing.T) {
	for _, file := range inputs(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			c := configFor(t, file)
			once, _ := inject(t, c, text)
			twice, _ := inject(t, c, []byte(once))
			require.Equal(t, once, twice)

			other := configFor(t, file)
			other.NativeSidecar, other.Image, other.Network = !c.NativeSidecar, "another", "elsewhere"
			between, _ := inject(t, other, []byte(once))
			back, _ := inject(t, c, []byte(between))
			require.Equal(t, once, back)
		})
	}
}

// pods returns the pods of testdata.
func pods(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	out := map[string]*corev1.Pod{}
	for _, file := range inputs(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			p := &corev1.Pod{}
			require.NoError(t, yaml.Unmarshal(doc, p))
			if p.Kind == "Pod" && p.Labels[labelInject] != "false" {
				out[file+" "+p.Name] = p
			}
		}
	}
	require.Len(t, out, 13)
	return out
}

// TestPatch checks that the patch has the result of the injection, and is empty for an injected pod.
func TestPatch(t *testing.T) {
	for name, pod := range pods(t) {
		t.Run(name, func(t *testing.T) {
			c := configFor(t, strings.Fields(name)[0])
			injected, err := c.Inject(pod, OwnerOf(pod))
			require.NoError(t, err)
			patch, err := Patch(pod, injected)
			require.NoError(t, err)
			require.Equal(t, injected, applied(t, pod, patch))
			again, err := c.Inject(injected, OwnerOf(injected))
			require.NoError(t, err)
			patch, err = Patch(injected, again)
			require.NoError(t, err)
			require.Nil(t, patch)
		})
	}
}

func applied(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	p, err := jsonpatch.DecodePatch(patch)
	require.NoError(t, err)
	text, err := json.Marshal(pod)
	require.NoError(t, err)
	text, err = p.Apply(text)
	require.NoError(t, err)
	out := &corev1.Pod{}
	require.NoError(t, json.Unmarshal(text, out))
	return out
}

// TestInjectDoesNotChangeItsInput checks that callers can compare with the pod that they passed.
func TestInjectDoesNotChangeItsInput(t *testing.T) {
	for name, pod := range pods(t) {
		before := pod.DeepCopy()
		c := configFor(t, strings.Fields(name)[0])
		injected, err := c.Inject(pod, OwnerOf(pod))
		require.NoError(t, err)
		require.Equal(t, before, pod)
		before = injected.DeepCopy()
		_, err = c.Inject(injected, OwnerOf(injected))
		require.NoError(t, err)
		require.Equal(t, before, injected)
	}
}

func TestDecide(t *testing.T) {
	c, err := Load([]byte(`
neverInjectSelector: [{matchExpressions: [{key: never, operator: Exists}]}]
alwaysInjectSelector: [{matchLabels: {always: "yes"}}]
`))
	require.NoError(t, err)
	off := *c
	off.Policy = PolicyDisabled
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{}
		p.Namespace, p.Labels, p.Annotations = "shop", map[string]string{}, map[string]string{}
		change(p)
		return p
	}
	for _, tt := range []struct {
		name    string
		change  func(*corev1.Pod)
		on, off bool   // by policy
		why     string // the reason if off
	}{
		{"no label or annotation", func(*corev1.Pod) {}, true, false, "the policy is disabled"},
		{"label true", func(p *corev1.Pod) { p.Labels[labelInject] = "true" }, true, true, ""},
		{"label false", func(p *corev1.Pod) { p.Labels[labelInject] = "false" }, false, false, "its label sidecar.istio.io/inject is false"},
		{"annotation false", func(p *corev1.Pod) { p.Annotations[annotationInject] = "false" }, false, false, "its annotation"},
		{"label before annotation", func(p *corev1.Pod) { p.Labels[labelInject], p.Annotations[annotationInject] = "true", "false" }, true, true, ""},
		{"neither true nor false", func(p *corev1.Pod) { p.Labels[labelInject] = "yes" }, true, false, "policy"},
		{"never", func(p *corev1.Pod) { p.Labels["never"] = "" }, false, false, "neverInjectSelector"},
		{"label before never", func(p *corev1.Pod) { p.Labels["never"], p.Labels[labelInject] = "", "true" }, true, true, ""},
		{"never before always", func(p *corev1.Pod) { p.Labels["never"], p.Labels["always"] = "", "yes" }, false, false, "neverInjectSelector"},
		{"always", func(p *corev1.Pod) { p.Labels["always"] = "yes" }, true, true, ""},
		{"host network", func(p *corev1.Pod) { p.Spec.HostNetwork, p.Labels[labelInject] = true, "true" }, false, false, "the host's network"},
		{"mirror of a static Pod", func(p *corev1.Pod) {
			p.Annotations[corev1.MirrorPodAnnotationKey], p.Labels[labelInject] = "hash", "true"
		}, false, false, "static Pod"},
		{"system namespace", func(p *corev1.Pod) { p.Namespace, p.Labels[labelInject] = "kube-system", "true" }, false, false, "kube-system is excluded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			on, _ := c.Decide(pod(tt.change))
			require.Equal(t, tt.on, on)
			got, why := off.Decide(pod(tt.change))
			require.Equal(t, tt.off, got)
			require.Contains(t, why, tt.why)
		})
	}
}

// TestMistakesAreNamed checks that errors name the annotation.
func TestMistakesAreNamed(t *testing.T) {
	for annotation, value := range map[string]string{
		annotationCPU: "much", annotationMemoryLimit: "1GiB x", annotationNative: "sure", annotationUserVolume: "[1]",
		annotationUserMount: `{"a": {}}`, annotationStatusPort: "0x", annotationPeriod: "-1", annotationRewrite: "maybe", annotationHoldUntilDrained: "perhaps",
		annotationMerge: "?", annotationProxyConfig: "concurrency: many", annotationTemplates: "unknown", metricsPort: "http", metricsTargets: "8080:/m,:/n",
		annotationStatus: "broken", "sidecar.istio.io/interceptionMode": "SOMETIMES", "traffic.sidecar.istio.io/excludeInboundPorts": "80;81",
	} {
		t.Run(annotation, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Name, p.Annotations = "p", map[string]string{annotation: value}
			_, err := Default().Inject(p, OwnerOf(p))
			require.ErrorContains(t, err, annotation)
		})
	}
}

// TestRulesKnowTheAddresses checks that the init container knows for which families of addresses Envoy listens.
func TestRulesKnowTheAddresses(t *testing.T) {
	p := &corev1.Pod{}
	injected, err := Default().Inject(p, OwnerOf(p))
	require.NoError(t, err)
	addresses := field("INSTANCE_IP", "status.podIPs")
	require.Contains(t, sidecarOf(injected).Env, addresses)
	require.Contains(t, find(injected.Spec.InitContainers, initContainer).Env, addresses)
}

// TestModulesAreOnDisk checks that Wasm modules, up to 1 GB of them, do not count as the sidecar's memory.
func TestModulesAreOnDisk(t *testing.T) {
	for _, template := range []string{SidecarTemplate, GatewayTemplate} {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{annotationTemplates: template}
		injected, err := Default().Inject(p, OwnerOf(p))
		require.NoError(t, err)
		sidecar, place := sidecarOf(injected), ""
		for _, a := range sidecar.Args {
			if dir, ok := strings.CutPrefix(a, "--wasm-cache-dir="); ok {
				place = dir
			}
		}
		i := slices.IndexFunc(sidecar.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(place, m.MountPath+"/") })
		require.GreaterOrEqual(t, i, 0, "%q is in a volume", place)
		require.Contains(t, injected.Spec.Volumes, corev1.Volume{Name: sidecar.VolumeMounts[i].Name, VolumeSource: emptyDir()})
	}
}

// TestUserVolumes checks both forms of the annotations. As in Istio, the name in a value precedes its key.
func TestUserVolumes(t *testing.T) {
	for name, tc := range map[string]struct{ volumes, mounts string }{
		"array": {`[{"name": "istio-certs", "secret": {"secretName": "certs"}}, {"name": "data", "emptyDir": {}}]`,
			`[{"name": "istio-certs", "mountPath": "/etc/istio-certs", "readOnly": true}, {"name": "data", "mountPath": "/data"}]`},
		"object": {`{"istio-certs": {"secret": {"secretName": "certs"}}, "data": {"emptyDir": {}}}`,
			`{"istio-certs": {"mountPath": "/etc/istio-certs", "readOnly": true}, "data": {"mountPath": "/data"}}`},
		"object with names": {`{"a": {"name": "istio-certs", "secret": {"secretName": "certs"}}, "b": {"name": "data", "emptyDir": {}}}`,
			`{"a": {"name": "istio-certs", "mountPath": "/etc/istio-certs", "readOnly": true}, "b": {"name": "data", "mountPath": "/data"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Annotations = map[string]string{annotationUserVolume: tc.volumes, annotationUserMount: tc.mounts}
			injected, err := Default().Inject(p, OwnerOf(p))
			require.NoError(t, err)
			require.Contains(t, injected.Spec.Volumes, corev1.Volume{Name: "istio-certs",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "certs"}}})
			require.Contains(t, injected.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: emptyDir()})
			mounts := sidecarOf(injected).VolumeMounts
			require.Contains(t, mounts, corev1.VolumeMount{Name: "istio-certs", MountPath: "/etc/istio-certs", ReadOnly: true})
			require.Contains(t, mounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
		})
	}
}

// TestWrongUserVolumes checks that errors name the annotation.
func TestWrongUserVolumes(t *testing.T) {
	for annotation, values := range map[string][]string{
		annotationUserVolume: {`[{"emptyDir": {}}]`, `[1]`, `"data"`, `{"data": 1}`, `[{"name": "data", "emptyDir": 1}]`},
		annotationUserMount:  {`[{"mountPath": "/data"}]`, `[{"name": "data"}]`, `7`},
	} {
		for _, value := range values {
			p := &corev1.Pod{}
			p.Annotations = map[string]string{annotation: value}
			_, err := Default().Inject(p, OwnerOf(p))
			require.ErrorContains(t, err, annotation, value)
		}
	}
}

// TestSidecarOfAnotherUser checks that the rules exempt the user that the sidecar runs as.
func TestSidecarOfAnotherUser(t *testing.T) {
	user, group := int64(2000), int64(3000)
	pod := func(mode string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Annotations = "p", map[string]string{"sidecar.istio.io/interceptionMode": mode}
		p.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: proxyContainer, Image: autoImage,
			SecurityContext: &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &group}}}
		return p
	}
	for mode, want := range map[string]struct {
		user int64
		args []string
	}{"REDIRECT": {2000, []string{"--proxy-uid=2000", "--proxy-gid=3000"}}, "TPROXY": {0, []string{"--proxy-gid=3000"}}} {
		once, err := Default().Inject(pod(mode), OwnerOf(pod(mode)))
		require.NoError(t, err)
		twice, err := Default().Inject(once, OwnerOf(once))
		require.NoError(t, err)
		for _, p := range []*corev1.Pod{once, twice} {
			require.Equal(t, append([]string{"agent", "intercept", "--interception-mode=" + mode}, want.args...), find(p.Spec.InitContainers, initContainer).Args)
			require.Equal(t, want.user, *sidecarOf(p).SecurityContext.RunAsUser)
			require.Equal(t, group, *sidecarOf(p).SecurityContext.RunAsGroup)
		}
	}
}

// TestPullPolicyOfAuto checks that the pull policy that the API server gives to the image "auto" is not the injected image's.
func TestPullPolicyOfAuto(t *testing.T) {
	for name, tc := range map[string]struct {
		given, configured, want corev1.PullPolicy
	}{
		"default":    {corev1.PullAlways, "", ""},
		"configured": {corev1.PullAlways, corev1.PullNever, corev1.PullNever},
		"chosen":     {corev1.PullIfNotPresent, corev1.PullNever, corev1.PullIfNotPresent},
	} {
		for _, template := range []string{SidecarTemplate, GatewayTemplate} {
			t.Run(name+" "+template, func(t *testing.T) {
				p := &corev1.Pod{}
				p.Annotations = map[string]string{annotationTemplates: template}
				p.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: proxyContainer, Image: autoImage, ImagePullPolicy: tc.given}}
				config := Default()
				config.ImagePullPolicy = tc.configured
				once, err := config.Inject(p, OwnerOf(p))
				require.NoError(t, err)
				twice, err := config.Inject(once, OwnerOf(once))
				require.NoError(t, err)
				require.Equal(t, tc.want, sidecarOf(once).ImagePullPolicy)
				require.Equal(t, tc.want, sidecarOf(twice).ImagePullPolicy)
			})
		}
	}
}

// TestProbesOfTheAgentStay checks that probes of the agent are not redirected to the agent, which would probe itself.
func TestProbesOfTheAgentStay(t *testing.T) {
	probe := func() *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(defaultStatus)}}}
	}
	p := &corev1.Pod{}
	p.Spec.Containers = []corev1.Container{{Name: "app", StartupProbe: probe()}}
	injected, err := Default().Inject(p, OwnerOf(p))
	require.NoError(t, err)
	require.Equal(t, probe(), injected.Spec.Containers[0].StartupProbe)
}

// TestMetricsThatAreNotToBeScraped checks each value that disables scraping.
func TestMetricsThatAreNotToBeScraped(t *testing.T) {
	for _, no := range []string{"false", "False", "0"} {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{metricsScrape: no}
		injected, err := Default().Inject(p, OwnerOf(p))
		require.NoError(t, err)
		require.Equal(t, no, injected.Annotations[metricsScrape])
		require.NotContains(t, injected.Annotations, metricsPort)
	}
}

// TestSeveralAddressesOfMetrics checks that the agent learns the addresses, as istiod writes them, and that the annotations can
// be restored.
func TestSeveralAddressesOfMetrics(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"targets alone": {map[string]string{metricsTargets: " 8080:/m, 9090 ,"},
			`{"scrape":"","path":"","port":"","targets":[{"port":"8080","path":"/m"},{"port":"9090","path":"/metrics"}]}`},
		"with a port": {map[string]string{metricsTargets: "8080:/m", metricsPort: "9999", metricsScrape: "true"},
			`{"scrape":"true","path":"","port":"9999","targets":[{"port":"8080","path":"/m"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Annotations = maps.Clone(tc.annotations)
			injected, err := Default().Inject(p, OwnerOf(p))
			require.NoError(t, err)
			require.Contains(t, sidecarOf(injected).Env, corev1.EnvVar{Name: envMetrics, Value: tc.want})
			require.Equal(t, "15020", injected.Annotations[metricsPort])
			restored, err := restore(injected)
			require.NoError(t, err)
			for _, name := range []string{metricsTargets, metricsPort, metricsScrape, metricsPath} {
				require.Equal(t, tc.annotations[name], restored.Annotations[name])
			}
		})
	}
}

// TestTooManyAddressesOfMetrics checks that one Pod cannot make its agent read any number of addresses.
func TestTooManyAddressesOfMetrics(t *testing.T) {
	p := &corev1.Pod{}
	p.Annotations = map[string]string{metricsTargets: strings.Repeat("8080:/m,", maxTargets+1)}
	_, err := Default().Inject(p, OwnerOf(p))
	require.ErrorContains(t, err, "more than 16 addresses")
}

// TestHandlersOfTheUser checks that another kind of probe or hook in the Pod takes the place of the sidecar's: with two, the API
// server refuses the Pod.
func TestHandlersOfTheUser(t *testing.T) {
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(15021)}}
	hook := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/quit", Port: intstr.FromInt32(80)}}
	for _, native := range []bool{true, false} {
		t.Run(fmt.Sprintf("native %t", native), func(t *testing.T) {
			c := Default()
			c.NativeSidecar = native
			require.NoError(t, c.Prepare())
			p := &corev1.Pod{}
			p.Spec.Containers = []corev1.Container{{
				Name: proxyContainer, Image: autoImage, Lifecycle: &corev1.Lifecycle{PreStop: hook},
				ReadinessProbe: &corev1.Probe{ProbeHandler: tcp}, StartupProbe: &corev1.Probe{ProbeHandler: tcp, FailureThreshold: 7},
			}}
			injected, err := c.Inject(p, OwnerOf(p))
			require.NoError(t, err)
			got := sidecarOf(injected)
			require.Equal(t, tcp, got.ReadinessProbe.ProbeHandler)
			require.Equal(t, tcp, got.StartupProbe.ProbeHandler)
			require.EqualValues(t, 1, got.StartupProbe.PeriodSeconds, "other fields stay")
			require.Equal(t, hook, got.Lifecycle.PreStop)
		})
	}
}

// TestResourcesOfTheConfiguration checks that a configuration replaces the default resources, also by none.
func TestResourcesOfTheConfiguration(t *testing.T) {
	for text, want := range map[string]corev1.ResourceRequirements{
		"{}":            Default().Resources,
		"resources: {}": {},
		"resources: {limits: {memory: 2Gi}, requests: null}": {Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}},
	} {
		c, err := Load([]byte(text))
		require.NoError(t, err)
		p := &corev1.Pod{}
		injected, err := c.Inject(p, OwnerOf(p))
		require.NoError(t, err)
		require.True(t, equality.Semantic.DeepEqual(want, sidecarOf(injected).Resources), text)
	}
}

// TestInterceptionOfTheMesh checks that Istio's values apply to all Pods without an annotation.
func TestInterceptionOfTheMesh(t *testing.T) {
	for name, tc := range map[string]struct {
		values      string
		annotations map[string]string
		want        []string
	}{
		"none": {"{}", nil, nil},
		"values": {"{excludeIPRanges: 192.0.2.0/24, excludeOutboundPorts: 6379, includeInboundPorts: ''}", nil,
			[]string{"--include-inbound-ports=", "--exclude-outbound-ip-ranges=192.0.2.0/24", "--exclude-outbound-ports=6379"}},
		"all values": {"{includeIPRanges: 10.0.0.0/8, excludeIPRanges: 10.1.0.0/16, includeInboundPorts: '80,81', excludeInboundPorts: '81', includeOutboundPorts: '82', excludeOutboundPorts: '83'}", nil,
			[]string{"--include-inbound-ports=80,81", "--exclude-inbound-ports=81", "--include-outbound-ip-ranges=10.0.0.0/8", "--exclude-outbound-ip-ranges=10.1.0.0/16", "--include-outbound-ports=82", "--exclude-outbound-ports=83"}},
		"annotation first": {"{excludeIPRanges: 192.0.2.0/24}", map[string]string{"traffic.sidecar.istio.io/excludeOutboundIPRanges": ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load([]byte("values: {global: {proxy: " + tc.values + "}}"))
			require.NoError(t, err)
			p := &corev1.Pod{}
			p.Annotations = tc.annotations
			injected, err := c.Inject(p, OwnerOf(p))
			require.NoError(t, err)
			require.Equal(t, append([]string{"agent", "intercept", "--interception-mode=REDIRECT"}, tc.want...), find(injected.Spec.InitContainers, initContainer).Args)
		})
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"polcy: enabled":    `unknown field "polcy"`,
		"policy: sometimes": "policy",
		"image: ''":         "image",
		"resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}":                "resources.requests.memory: 2Gi exceeds the limit of 1Gi",
		"values: {global: {proxy: {excludeInboundPorts: '80;81'}}}":                  "values.global.proxy, for --exclude-inbound-ports",
		"templates: {a: '{{ .X'}":                                                    "templates[a]",
		"neverInjectSelector: [{matchExpressions: [{key: a, operator: Sometimes}]}]": "neverInjectSelector[0]",
	} {
		_, err := Load([]byte(text))
		require.ErrorContains(t, err, want)
	}
	c, err := Load([]byte("templates: {sidecar: 'spec: {containers: [{name: own, image: \"{{ .ProxyImage }}\"}]}', bad: '{{ .Nothing }}', list: '- a'}"))
	require.NoError(t, err)
	p := &corev1.Pod{}
	injected, err := c.Inject(p, OwnerOf(p))
	require.NoError(t, err, "a template of that name replaces the built-in one")
	require.Equal(t, []corev1.Container{{Name: "own", Image: "moonsail"}}, injected.Spec.Containers)
	for _, name := range []string{"bad", "list"} {
		p.Annotations = map[string]string{annotationTemplates: name}
		_, err = c.Inject(p, OwnerOf(p))
		require.ErrorContains(t, err, "template "+name)
	}
}

func TestBadDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n": "Deployment d: field template: missing",
		"kind: Pod\nmetadata: {name: p}\nspec: {containers: 1}\n":                "Pod p: ",
		"kind: Pod\nmetadata: 1\n":                                               "Pod: metadata",
		"a: b\n---\n\"":                                                          "document 2",
		"kind: List\nitems: [{kind: Pod, metadata: {name: p, annotations: {sidecar.istio.io/proxyCPU: x}}}]\n": "items[0]: Pod p: annotation sidecar.istio.io/proxyCPU",
	} {
		err := Default().File(strings.NewReader(text), io.Discard, func(string, string) {})
		require.ErrorContains(t, err, want)
	}
}

// FuzzInject checks with arbitrary pods that injection ends, that a second one changes nothing, and that the patch has the
// result.
func FuzzInject(f *testing.F) {
	for _, file := range []string{"testdata/annotations.yaml", "testdata/override.yaml", "testdata/none.yaml", "testdata/templates.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		j, err := yaml.YAMLToJSON(text)
		require.NoError(f, err)
		f.Add(j)
	}
	f.Add([]byte(`{"metadata":{"annotations":{"sidecar.istio.io/status":"{}","proxy.istio.io/overrides":"{\"containers\":[{\"name\":\"istio-proxy\"}]}"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		pod := &corev1.Pod{}
		if json.Unmarshal(text, pod) != nil {
			return
		}
		c := Default()
		require.NoError(t, c.Prepare())
		c.Decide(pod)
		once, err := c.Inject(pod, OwnerOf(pod))
		if err != nil {
			return
		}
		_, err = Patch(pod, once)
		require.NoError(t, err)
		twice, err := c.Inject(once, OwnerOf(once))
		require.NoError(t, err)
		thrice, err := c.Inject(twice, OwnerOf(twice))
		require.NoError(t, err)
		require.Equal(t, twice, thrice)
	})
}
