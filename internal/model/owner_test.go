package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkloadsOfOwners checks which object a Pod belongs to by its owner and its labels.
func TestWorkloadsOfOwners(t *testing.T) {
	for name, test := range map[string]struct {
		apiVersion, kind, owner string
		labels                  map[string]string
		want, object            string
	}{
		"a Deployment":       {"apps/v1", "ReplicaSet", "web-7d9c", map[string]string{"pod-template-hash": "7d9c"}, "web", "apps/v1 Deployment"},
		"a Rollout":          {"apps/v1", "ReplicaSet", "web-7d9c", map[string]string{"rollouts-pod-template-hash": "7d9c"}, "web", "argoproj.io/v1alpha1 Rollout"},
		"a ReplicaSet":       {"apps/v1", "ReplicaSet", "web-7d9c", nil, "web-7d9c", "apps/v1 ReplicaSet"},
		"with another hash":  {"apps/v1", "ReplicaSet", "web-7d9c", map[string]string{"pod-template-hash": "c"}, "web-7d9c", "apps/v1 ReplicaSet"},
		"a DeploymentConfig": {"v1", "ReplicationController", "web-2", map[string]string{"deploymentconfig": "web"}, "web", "apps.openshift.io/v1 DeploymentConfig"},
		"a CronJob":          {"batch/v1", "Job", "report-29012345", nil, "report", "batch/v1 CronJob"},
		"a Job":              {"batch/v1", "Job", "report-2901", nil, "report-2901", "batch/v1 Job"},
		"a StatefulSet":      {"apps/v1", "StatefulSet", "db-29012345", nil, "db-29012345", "apps/v1 StatefulSet"},
	} {
		t.Run(name, func(t *testing.T) {
			owner := Owner{test.apiVersion, test.kind, test.owner}
			w := owner.Workload(test.labels)
			require.Equal(t, test.want, w.Name)
			require.Equal(t, test.object, w.APIVersion+" "+w.Kind)
		})
	}
}

// TestWorkloadsOfProxies checks which workload a proxy reports.
func TestWorkloadsOfProxies(t *testing.T) {
	owner := Owner{"apps/v1", "Deployment", "web"}.URI("shop")
	for want, metadata := range map[string]map[string]string{
		"deployment/web": {"OWNER": owner, "WORKLOAD_NAME": "other"},
		"web":            {"WORKLOAD_NAME": "web"},
		"api":            {"OWNER": "kubernetes://apis/apps/v1/namespaces/shop", "WORKLOAD_NAME": "api"},
		"":               nil,
	} {
		require.Equal(t, want, (&Proxy{Metadata: metadata}).Workload())
	}
}
