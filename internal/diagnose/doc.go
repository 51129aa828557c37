// Package diagnose answers people's questions about a mesh:
//
//	explain    which proxies have a change, which do not, and why; what a proxy has; what decides a call
//	simulate   what one Envoy does with a call, from its resources alone; pure
//	preview    which calls a change would decide differently, before it is applied
//	compare    which calls another control plane would decide differently
//	outcome    what becomes of a simulated call, as a text for each property
//	caller     the names, address and certificate of who makes a simulated call
//	sample     requests that the matchers of routes and policies match
//	configdump the shape of Envoy's config dump
//	doctor     findings about a running mesh, Istio's or Moonsail's, with evidence and advice
//	profile    where an Envoy or the control plane spends its CPU
//	bugreport  an archive of the control plane's state, without secrets
//
// It reads the pipeline and xDS through query interfaces, and changes nothing. The debug pages of
// controlplane/debug and the commands of cli show its answers. Start reading at explain.Explainer.
//
// Layer 7 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package diagnose
