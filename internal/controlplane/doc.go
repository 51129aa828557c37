// Package controlplane is `moonsail serve`: Run starts sources, pipeline, xDS server and the rest, joins them,
// and ends them in order. The whole of it is on one screen.
//
// What it starts:
//
//	status     writes what is wrong with an object into the object's status; one of several replicas does
//	webhook    validates objects before they are stored, and injects sidecars into Pods
//	debug      JSON pages over every stage, metrics, profiles
//	dashboard  a page over these, in TypeScript
//	peers      the other control planes of the mesh: discovery, liveness, calls
//	drain      deregisters workloads without losing a request
//	agents     asks agents what their Envoys hold and use
//	tracing    changes as OpenTelemetry traces
package controlplane
