// Package preview computes what a change of the configuration does before it is applied: which proxies would be sent what,
// and which calls would be decided differently.
//
// It translates both configurations from scratch, for the same proxies, with the stages of the control plane. Each call
// then goes through the caller's proxy and the sidecars of the endpoints, on both sides, by package simulate. It starts no
// goroutine and writes nothing.
//
//	Populate   adds proxies, and endpoints of workloads that no cluster runs yet
//	AccessLog  reads calls from Envoys' access logs
//	Compute    translates both sides, compares resources, tries the calls, compares outcomes
//
// Start reading at Compute in preview.go.
package preview
