package istiometrics

import "cmp"

// Of returns the workload of a sidecar. name is that of its Deployment or other owner.
func Of(name, namespace, cluster string, labels map[string]string) *Workload {
	first := func(keys ...string) string {
		for _, k := range keys {
			if v := labels[k]; v != "" {
				return v
			}
		}
		return ""
	}
	return &Workload{
		Name: name, Namespace: namespace, Cluster: cluster, App: labels["app"], Version: labels["version"],
		Service:  cmp.Or(first("service.istio.io/canonical-name", "app.kubernetes.io/name", "app"), name),
		Revision: first("service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"),
	}
}
