// Package source provides the mesh's objects:
//
//	file  a directory of YAML, watched; the embedded default
//	kube  a Kubernetes API server, with one reflector for each kind; measures the API server's delay
//	jwks  the keys of token issuers, fetched and renewed
//
// A source decodes with package config and puts events into the store's intake. It keeps the last valid version of each
// object: an object that cannot be decoded stays unchanged, and its problems are reported.
//
// Start reading at file.Source, the smaller one, then kube.Source.
//
// Layer 6 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package source
