package istiometrics

import "github.com/moonsail/moonsail/internal/xds/callstats"

// Of returns the workload of a sidecar. name is that of its Deployment or other owner.
func Of(name, namespace, cluster string, labels map[string]string) *callstats.Workload {
	return &callstats.Workload{
		Name: name, Namespace: namespace, Cluster: cluster, App: labels["app"], Version: labels["version"],
		Service: callstats.CanonicalService(labels, name), Revision: callstats.CanonicalRevision(labels),
	}
}
