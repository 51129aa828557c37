// Package security authenticates callers and decides what they may do:
//
//	ca           the mesh's certificate authority: its key, rotation of the key, CreateCertificate
//	external     the control plane's certificate if another authority issues the mesh's
//	workloadapi  certificates from the SPIFFE Workload API, as of SPIRE
//	revocation   lists of revoked certificates (CRL)
//	servercert   server certificates of the control plane
//	certpem      certificates in PEM
//	authn        authenticates callers by certificate or token, and decides which proxies they may be
//	jwt          JSON Web Key Sets and tokens, checked as Envoy checks them; pure
//	debugauth    who may read debug pages
//	safedial     connections to servers in users' objects, without access to cloud metadata
//
// An unknown caller gets an error with the reason. If a caller cannot be authenticated, access is denied.
//
// Start reading at Callers.Authenticate in authn.
//
// Layer 3 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package security
