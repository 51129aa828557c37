// Package cluster tests the mesh on a real Kubernetes API server.
package cluster
