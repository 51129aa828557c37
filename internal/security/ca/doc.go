// Package ca is the mesh's certificate authority. It has a signing certificate with its key and the roots that
// workloads trust, and answers Istio's CreateCertificate.
//
// The signing certificate is in a Store: a directory or a Kubernetes Secret. If the Store is empty, a root is generated
// there. A root of an operator is used unchanged; changes apply while the control plane runs. An invalid change is
// reported, and the last valid files stay in force.
//
// The identity in a certificate comes from authn only, never from the request. The private key stays with its holder.
package ca
