// Package source is where objects come from:
//
//	file  a directory of YAML, watched; the embedded default
//	kube  a Kubernetes API server; one reflector a kind, and the delay of the API server
//	jwks  the keys of token issuers, fetched and renewed
//
// A source decodes with package config and puts events into the store's intake. It keeps the last good state
// of each object: an object that cannot be decoded stays as it was, and its problems are reported.
package source
