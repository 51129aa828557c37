// Package security decides who somebody is and what they may do:
//
//	ca          the mesh's certificate authority: its key, how that is kept and replaced, CreateCertificate
//	servercert  certificates that the control plane shows as a server
//	authn       who calls the control plane, by certificate or token, and which proxies that caller may be
//	jwt         JSON Web Key Sets and tokens, checked as Envoy checks them; pure
//	debugauth   who may read debug pages
//	safedial    connections to servers that users' objects name, and to no cloud's metadata
//
// An unknown caller gets an error with the reason. A failure to find out who somebody is never lets them in.
package security
