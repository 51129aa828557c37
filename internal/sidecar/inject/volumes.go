package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// tokenSeconds is the lifetime of a token. The kubelet renews it earlier.
const tokenSeconds = 43200

// workloadSocket is the volume for the socket of the SPIFFE Workload API.
const workloadSocket = "workload-socket"

// places are the sidecar's volumes and their paths, as in Istio.
var places = []struct {
	name, path string
	source     func() corev1.VolumeSource
}{
	{workloadSocket, "/var/run/secrets/workload-spiffe-uds", emptyDir},
	{"credential-socket", "/var/run/secrets/credential-uds", emptyDir},
	{"workload-certs", "/var/run/secrets/workload-spiffe-credentials", emptyDir},
	{"istiod-ca-cert", "/var/run/secrets/istio", rootCert},
	{"istio-data", "/var/lib/istio/data", emptyDir},
	{"istio-envoy", workDir, memory},
	{"istio-token", "/var/run/secrets/tokens", token},
	{"istio-podinfo", podInfoDir, podInfo},
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

// driver is a volume that a CSI driver mounts. It needs no write access.
func driver(name string) corev1.VolumeSource {
	readOnly := true
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: name, ReadOnly: &readOnly}}
}

func memory() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}
}

func rootCert() corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: rootCertConfig}}}
}

func token() corev1.VolumeSource {
	seconds := int64(tokenSeconds)
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: tokenAudience, ExpirationSeconds: &seconds, Path: "istio-token"},
	}}}}
}

func podInfo() corev1.VolumeSource {
	item := func(name string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata." + name}}
	}
	return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{item("labels"), item("annotations")}}}
}

func (r *request) volumes() ([]corev1.Volume, error) {
	var out []corev1.Volume
	for _, p := range places {
		source := p.source()
		if p.name == workloadSocket && r.WorkloadAPI.Driver != "" {
			source = driver(r.WorkloadAPI.Driver)
		}
		out = append(out, corev1.Volume{Name: p.name, VolumeSource: source})
	}
	users := map[string]corev1.VolumeSource{}
	if err := r.fromAnnotation(annotationUserVolume, &users); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		out = append(out, corev1.Volume{Name: name, VolumeSource: users[name]})
	}
	return out, nil
}

func (r *request) mounts() ([]corev1.VolumeMount, error) {
	var out []corev1.VolumeMount
	for _, p := range places {
		out = append(out, corev1.VolumeMount{Name: p.name, MountPath: p.path})
	}
	users := map[string]corev1.VolumeMount{}
	if err := r.fromAnnotation(annotationUserMount, &users); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		m := users[name]
		m.Name = name
		if m.MountPath == "" {
			return nil, fmt.Errorf("annotation %s: %s has no mountPath", annotationUserMount, name)
		}
		out = append(out, m)
	}
	return out, nil
}

// fromAnnotation decodes an annotation of JSON, if it is set.
func (r *request) fromAnnotation(name string, into any) error {
	text, ok := r.pod.Annotations[name]
	if !ok || text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("annotation %s: not a JSON object by volume: %w", name, err)
	}
	return nil
}
