package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	{"istio-data", dataDir, emptyDir},
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

// volumes returns the sidecar's volumes. A volume of the same name in the Pod or in the annotation precedes the sidecar's.
func (r *request) volumes() ([]corev1.Volume, error) {
	users, err := named(r, annotationUserVolume, func(v *corev1.Volume) *string { return &v.Name })
	own := append(slices.Clone(r.pod.Spec.Volumes), users...)
	var out []corev1.Volume
	for _, p := range places {
		if slices.ContainsFunc(own, func(v corev1.Volume) bool { return v.Name == p.name }) {
			continue
		}
		source := p.source()
		if p.name == workloadSocket && r.WorkloadAPI.Driver != "" {
			source = driver(r.WorkloadAPI.Driver)
		}
		out = append(out, corev1.Volume{Name: p.name, VolumeSource: source})
	}
	return append(out, users...), err
}

func (r *request) mounts() ([]corev1.VolumeMount, error) {
	var out []corev1.VolumeMount
	for _, p := range places {
		out = append(out, corev1.VolumeMount{Name: p.name, MountPath: p.path})
	}
	users, err := named(r, annotationUserMount, func(m *corev1.VolumeMount) *string { return &m.Name })
	if err != nil {
		return nil, err
	}
	for i := range users {
		if users[i].MountPath == "" {
			return nil, fmt.Errorf("annotation %s: %s has no mountPath: set one", annotationUserMount, users[i].Name)
		}
	}
	return append(out, users...), nil
}

// named decodes an annotation that holds a JSON array of values with names, or a JSON object of values by name. As in Istio, a name in a
// value precedes its key.
func named[T any](r *request, annotation string, name func(*T) *string) ([]T, error) {
	text := r.pod.Annotations[annotation]
	if text == "" {
		return nil, nil
	}
	var list []T
	byName := map[string]T{}
	var into any = &byName
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		into = &list
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return nil, fmt.Errorf("annotation %s: neither a JSON array of values with names nor a JSON object by name: %w", annotation, err)
	}
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		v := byName[key]
		*name(&v) = cmp.Or(*name(&v), key)
		list = append(list, v)
	}
	for i := range list {
		if *name(&list[i]) == "" {
			return nil, fmt.Errorf("annotation %s: value %d has no name: set one", annotation, i)
		}
	}
	return list, nil
}
