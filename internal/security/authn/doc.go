// Package authn finds out who calls the control plane, and decides who may be which proxy.
//
// A caller shows a certificate of the mesh, or a token: one of a Kubernetes service account
// for the audience istio-ca, or one that a file of the control plane lists. Either says whose
// service account it is, which is the identity of a workload.
package authn
