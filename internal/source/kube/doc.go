// Package kube is the source of a Kubernetes cluster: it lists and watches the API server.
package kube
