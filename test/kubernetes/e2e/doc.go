// Package e2e tests Moonsail in a real Kubernetes cluster, with real Pods. All tests share one cluster of two nodes, which
// TestMain starts, and a control plane of two replicas. They need root, and the image that `make image` writes.
//
// Tests run in the order of their files, so that the one that ends a node (workerloss_test.go) runs last. Each test has a
// namespace. A test with traffic prints how many requests it made and how many failed.
//
// E2E_CLUSTER=NAME uses a cluster that runs already (`make cluster CLUSTER=NAME`), so that a single test takes seconds:
//
//	E2E_CLUSTER=moonsail go test -C test/kubernetes ./e2e -run TestRollingRestart -v
package e2e
