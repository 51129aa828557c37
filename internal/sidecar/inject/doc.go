// Package inject adds a sidecar to Pods and Pod templates, as Istio's injector does: for `moonsail inject` in files,
// for the mutating webhook as a patch.
//
//	Config, a Pod -> Decide -> restore -> overlay (sidecar, templates) -> merge -> finish
//
// Injection is idempotent: it restores the original Pod first.
package inject
