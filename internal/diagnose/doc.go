// Package diagnose answers people's questions about a mesh:
//
//	explain    which proxies have a change, which do not, and why; what a proxy holds; why a call ended as it did
//	simulate   what one Envoy does with a call, from its resources alone; pure
//	doctor     which known illnesses a running mesh has, Istio's or Moonsail's, with evidence and cure
//	profile    where an Envoy or the control plane spends its CPU
//	bugreport  an archive of what is known, without secrets
//
// It reads the pipeline and xDS through query interfaces, and changes nothing. The debug pages of
// controlplane/debug and the commands of cli show its answers.
package diagnose
