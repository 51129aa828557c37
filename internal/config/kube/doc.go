// Package kube converts Kubernetes' own objects into objects of the model: Service, EndpointSlice, Pod,
// Node, Namespace, Secret, and ConfigMap with certificates of CAs.
package kube
