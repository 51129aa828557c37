// Package authn authenticates the callers of the control plane, and decides which proxies a caller may be.
//
// A caller presents a certificate of the mesh or a token: a token of a Kubernetes service account for the audience
// istio-ca, or a token in a file of the control plane. Both identify a service account, which is the identity of a
// workload.
package authn
