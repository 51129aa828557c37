// Package controlplane is `moonsail serve`. Run connects sources, pipeline, xDS server and the rest, starts
// them, and ends them in order.
//
// Packages below:
//
//	status         writes the problems of an object into its status; one of several replicas writes
//	gatewaydeploy  deploys Gateways of the Gateway API; the replica that writes statuses does it
//	webhook        validates objects before they are stored, and injects sidecars into Pods
//	debug          JSON pages over every stage, metrics, profiles
//	istiodebug     istiod's debug pages, for istioctl and Kiali
//	traffic        calls between workloads, for the graph of the dashboard
//	dashboard      a page over these, in TypeScript
//	peers          the other control planes of the mesh: discovery, liveness, calls
//	drain          deregisters workloads without losing a request
//	election       elects the replica that writes statuses, with a Lease
//	agents         asks agents what their Envoys have and use
//	dependencies   which services workloads call, remembered and shared with the other control planes
//	tracing        changes as OpenTelemetry traces
//
// Start reading at Run in controlplane.go, which lists what runs, then parts.go, which makes and connects the parts. bind.go
// binds proxies to the engine; listen.go has the ports; identity.go is the one with TLS; peers.go connects replicas.
//
// Layer 8 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package controlplane
