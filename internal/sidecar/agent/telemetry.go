package agent

import (
	"cmp"
	"os"

	"github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"
)

// own is the sidecar's workload as metrics name it.
func (s *settings) own() *istiometrics.Workload {
	w := &s.Workload
	return istiometrics.Of(cmp.Or(w.WorkloadName, w.Name), w.Namespace, s.ClusterID, w.Labels)
}

// telemetryEnv is what Envoy's configuration, which is many workloads', takes from the
// environment: who calls, and whose spans these are. What the user has set stays.
func (s *settings) telemetryEnv() []string {
	own := s.own()
	env := []string{
		"MOONSAIL_WORKLOAD=" + own.Text(),
		"MOONSAIL_CANONICAL_SERVICE=" + own.Service,
		"MOONSAIL_CANONICAL_REVISION=" + cmp.Or(own.Revision, "latest"),
		"MOONSAIL_CLUSTER_ID=" + s.ClusterID,
		"MOONSAIL_MESH_ID=" + s.MeshID,
		"MOONSAIL_NAMESPACE=" + own.Namespace,
	}
	for name, value := range map[string]string{
		"OTEL_RESOURCE_ATTRIBUTES": "service.name=" + s.node.cluster,
		"DD_SERVICE":               s.node.cluster, // Datadog's tracer
	} {
		if os.Getenv(name) == "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
