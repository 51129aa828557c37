package inject

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestTemplatesChangeTheSidecar checks that a template of Istio's documentation, which changes a container, changes the sidecar
// wherever it is.
func TestTemplatesChangeTheSidecar(t *testing.T) {
	const greeting = `{name: istio-proxy, env: [{name: GREETING, value: hello}]}`
	for name, tc := range map[string]struct {
		template string
		order    string
		native   bool
	}{
		"native":                        {"containers: [" + greeting + "]", "sidecar,custom", true},
		"native, template first":        {"containers: [" + greeting + "]", "custom,sidecar", true},
		"native, written for it":        {"initContainers: [" + greeting + "]", "sidecar,custom", true},
		"native, written for both":      {"containers: [" + greeting + "], initContainers: [{name: istio-proxy, tty: true}]", "sidecar,custom", true},
		"native, with other containers": {"containers: [{name: other}, " + greeting + "]", "sidecar,custom", true},
		"classic":                       {"containers: [" + greeting + "]", "sidecar,custom", false},
		"gateway":                       {"containers: [" + greeting + "]", "gateway,custom", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load([]byte("nativeSidecar: " + strconv.FormatBool(tc.native) + "\ntemplates: {custom: 'spec: {" + tc.template + "}'}"))
			require.NoError(t, err)
			p := &corev1.Pod{}
			p.Annotations = map[string]string{annotationTemplates: tc.order}
			p.Spec.Containers = []corev1.Container{{Name: "app"}}
			once, err := c.Inject(p, OwnerOf(p))
			require.NoError(t, err)
			twice, err := c.Inject(once, OwnerOf(once))
			require.NoError(t, err)
			require.Equal(t, once, twice)

			sidecars := 0
			for _, list := range [][]corev1.Container{once.Spec.Containers, once.Spec.InitContainers} {
				for i := range list {
					if list[i].Name == proxyContainer {
						sidecars++
						require.Equal(t, "moonsail", list[i].Image)
						require.Contains(t, list[i].Env, corev1.EnvVar{Name: "GREETING", Value: "hello"})
					}
				}
			}
			require.Equal(t, 1, sidecars)
		})
	}
}

// TestVolumesHaveOneSource checks that a volume that a user changes has the user's source alone, as Kubernetes demands.
func TestVolumesHaveOneSource(t *testing.T) {
	const template = "templates: {custom: 'spec: {volumes: [{name: workload-socket, csi: {driver: csi.spiffe.io, readOnly: true}}, {name: istio-data, persistentVolumeClaim: {claimName: data}}]}'}"
	readOnly := true
	spire := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.spiffe.io", ReadOnly: &readOnly}}
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	for name, tc := range map[string]struct {
		annotations map[string]string
		volumes     []corev1.Volume
	}{
		"template of a sidecar":  {annotations: map[string]string{annotationTemplates: "sidecar,custom"}},
		"template of a gateway":  {annotations: map[string]string{annotationTemplates: "gateway,custom"}},
		"template with no value": {annotations: map[string]string{annotationTemplates: "sidecar,custom,null"}},
		"annotation": {annotations: map[string]string{
			annotationUserVolume: `{"workload-socket": {"csi": {"driver": "csi.spiffe.io", "readOnly": true}}, "istio-data": {"persistentVolumeClaim": {"claimName": "data"}}}`,
		}},
		"Pod": {volumes: []corev1.Volume{{Name: "workload-socket", VolumeSource: spire}, {Name: "istio-data", VolumeSource: claim}}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load([]byte(template))
			require.NoError(t, err)
			c.Templates["null"] = "spec: {volumes: [{name: workload-socket, emptyDir: null}, {name: istio-data}]}"
			require.NoError(t, c.Prepare())
			p := &corev1.Pod{}
			p.Annotations, p.Spec.Volumes = tc.annotations, tc.volumes
			once, err := c.Inject(p, OwnerOf(p))
			require.NoError(t, err)
			twice, err := c.Inject(once, OwnerOf(once))
			require.NoError(t, err)
			for _, p := range []*corev1.Pod{once, twice} {
				require.Contains(t, p.Spec.Volumes, corev1.Volume{Name: "workload-socket", VolumeSource: spire})
				require.Contains(t, p.Spec.Volumes, corev1.Volume{Name: "istio-data", VolumeSource: claim})
				names := map[string]int{}
				for _, v := range p.Spec.Volumes {
					names[v.Name]++
				}
				require.Equal(t, 1, names["workload-socket"])
				require.Equal(t, 1, names["istio-data"])
			}
		})
	}
}
