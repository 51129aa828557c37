package inject

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
)

// env returns the agent's environment: facts about the Pod, and the mesh's ProxyConfig.
func (r *request) env() ([]corev1.EnvVar, error) {
	config, err := protojson.Marshal(r.configs.base)
	if err != nil {
		return nil, err
	}
	ports, err := r.ports()
	if err != nil {
		return nil, err
	}
	out := []corev1.EnvVar{
		field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), podIPs(),
		field("SERVICE_ACCOUNT", "spec.serviceAccountName"), field("HOST_IP", "status.hostIP"), field("ISTIO_META_NODE_NAME", "spec.nodeName"),
		limit("ISTIO_CPU_LIMIT", "limits.cpu"), limit("GOMEMLIMIT", "limits.memory"),
	}
	for _, row := range [][2]string{
		{"PROXY_CONFIG", compact(config)},
		{"ISTIO_META_POD_PORTS", ports},
		{"ISTIO_META_APP_CONTAINERS", strings.Join(r.applications(), ",")},
		{"ISTIO_META_CLUSTER_ID", r.ClusterID},
		{"ISTIO_META_INTERCEPTION_MODE", r.settings.Mode},
		{"ISTIO_META_NETWORK", cmp.Or(r.pod.Labels[labelNetwork], r.Network)},
		{"ISTIO_META_WORKLOAD_NAME", cmp.Or(r.pod.Labels[model.LabelWorkloadName], r.owner.Name)},
		{"ISTIO_META_OWNER", r.owner.uri()},
		{"ISTIO_META_MESH_ID", cmp.Or(r.MeshID, r.TrustDomain)},
		{"TRUST_DOMAIN", r.TrustDomain},
		{"CA_ADDR", r.CAAddress},
		{"WORKLOAD_IDENTITY_SOCKET_FILE", r.WorkloadAPI.Socket},
		{appprobe.LocalProbesVariable, r.localProbes()},
		{envEarlyEnd, r.earlyEnd()},
	} {
		if row[1] != "" {
			out = append(out, corev1.EnvVar{Name: row[0], Value: row[1]})
		}
	}
	return append(out, r.metadataEnv()...), nil
}

// earlyEnd is "false" for a sidecar that the kubelet ends together with the application, which may then use Envoy for the whole drain
// time. proxyMetadata may decide otherwise.
func (r *request) earlyEnd() string {
	if _, chosen := r.proxyConfig.GetProxyMetadata()[envEarlyEnd]; chosen || r.native || r.router {
		return ""
	}
	return "false"
}

// localProbes is "true" if probes use the loopback address, as calls do.
func (r *request) localProbes() string {
	if r.inboundMode() == localInbound {
		return "true"
	}
	return ""
}

// compact removes the spaces that protojson varies on purpose.
func compact(text []byte) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return string(text)
	}
	out, _ := json.Marshal(v) // cannot fail: it was decoded from JSON
	return string(out)
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// podIPs are the Pod's addresses. Envoy's listeners and the rules of interception follow their families.
func podIPs() corev1.EnvVar { return field("INSTANCE_IP", "status.podIPs") }

func limit(name, of string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: resource.MustParse("1")}}}
}

// metadataEnv returns ProxyConfig's proxyMetadata, sorted by name.
func (r *request) metadataEnv() []corev1.EnvVar {
	m := r.proxyConfig.GetProxyMetadata()
	var out []corev1.EnvVar
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, corev1.EnvVar{Name: k, Value: m[k]})
	}
	return out
}

// applications returns the names of the Pod's own containers.
func (r *request) applications() []string {
	var out []string
	for _, c := range r.pod.Spec.Containers {
		if c.Name != proxyContainer {
			out = append(out, c.Name)
		}
	}
	return out
}

// ports returns the ports of the application's containers, in the order in which Kubernetes searches them for a name.
func (r *request) ports() (string, error) {
	ports := []corev1.ContainerPort{}
	for _, c := range kube.LastingContainers(&r.pod.Spec) {
		if c.Name != proxyContainer {
			ports = append(ports, c.Ports...)
		}
	}
	out, err := json.Marshal(ports)
	return string(out), err
}
