// Package ca is the mesh's certificate authority: it has a signing certificate with its key
// and the roots that workloads trust, and signs what workloads ask for in Istio's
// CreateCertificate.
//
// What it signs with lies in a Store: a directory, or a Kubernetes Secret. Where there is
// nothing, a root is made and kept there; one that an operator has put there is used as it
// is, and taken up when it changes. What is wrong with a change is told, and what was good
// stays in force.
//
// A certificate says who its holder is, and that comes from authn alone, never from the
// request. Its key is the holder's and never seen here.
package ca
