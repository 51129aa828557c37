// Package workload describes the workload that a sidecar serves, and reads the description from a Pod in a YAML file or
// from the files that the kubelet writes.
package workload

import "github.com/moonsail/moonsail/internal/model"

// Workload is the workload that the sidecar serves.
type Workload struct {
	Name           string
	Namespace      string   // empty: "default"
	IPs            []string // the first one is part of the node id
	Labels         map[string]string
	Annotations    map[string]string
	ServiceAccount string // empty: "default"
	WorkloadName   string // of the Deployment or other object that owns the Pod
	Owner          string // in Istio's form: kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME
	NodeName       string
	Containers     []string
	Ports          []Port
	Locality       model.Locality
}

// Port is a port of one of the workload's containers.
type Port struct {
	Name          string `json:"name,omitempty"`
	ContainerPort uint32 `json:"containerPort"`
	Protocol      string `json:"protocol"`
}
