package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Owner is the owner of a Pod.
type Owner struct{ APIVersion, Kind, Name string }

// Workload returns the object that users know as the workload of Pods with an owner and labels. For a ReplicaSet it is the Deployment or
// Argo Rollout, whose name the hash of the template extends; for a Job the CronJob, whose name a time extends; as in Istio.
func (o Owner) Workload(labels map[string]string) Owner {
	switch o.Kind {
	case "ReplicaSet":
		if name, ok := withoutHash(o.Name, labels["pod-template-hash"]); ok {
			return Owner{"apps/v1", "Deployment", name}
		}
		if name, ok := withoutHash(o.Name, labels["rollouts-pod-template-hash"]); ok {
			return Owner{"argoproj.io/v1alpha1", "Rollout", name}
		}
	case "ReplicationController":
		if name := labels["deploymentconfig"]; name != "" {
			return Owner{"apps.openshift.io/v1", "DeploymentConfig", name}
		}
	case "Job":
		if i := strings.LastIndexByte(o.Name, '-'); i > 0 && isCronTime(o.Name[i+1:]) {
			return Owner{"batch/v1", "CronJob", o.Name[:i]}
		}
	}
	return o
}

// URI returns the owner in Istio's form, for an owner in a namespace.
func (o Owner) URI(namespace string) string {
	return fmt.Sprintf("kubernetes://apis/%s/namespaces/%s/%ss/%s", o.APIVersion, namespace, strings.ToLower(o.Kind), o.Name)
}

// Workload returns the owner of a proxy's Pod as "deployment/web", or only its name if the type is not known; empty: unknown.
func (p *Proxy) Workload() string {
	_, owner, _ := strings.Cut(p.Metadata["OWNER"], "/namespaces/") // in the form of Owner.URI
	if parts := strings.Split(owner, "/"); len(parts) == 3 {
		return strings.TrimSuffix(parts[1], "s") + "/" + parts[2]
	}
	return p.Metadata["WORKLOAD_NAME"]
}

// PodLabels are labels with which controllers tell the Pods of one workload apart, or those of its versions.
var PodLabels = []string{
	"pod-template-hash", "rollouts-pod-template-hash", "controller-revision-hash",
	"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
}

func withoutHash(name, hash string) (string, bool) {
	if hash == "" {
		return name, false
	}
	return strings.CutSuffix(name, "-"+hash)
}

// isCronTime reports whether text is a time of a CronJob: minutes since 1970, eight digits until 2160.
func isCronTime(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil && len(text) == 8
}
