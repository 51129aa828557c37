// Package status writes the problems of an Istio object into the object's own status, in Istio's form: the
// condition Reconciled and validationMessages. Objects of the Gateway API get the statuses that this API
// defines.
//
// Start reading at checker.look in check.go. Files:
//
//	tracker.go       what the API server has of each object; findings.go: its problems; queue.go: whose status should differ
//	check.go       finds problems between objects, and what proxies refuse; peers.go asks the other control planes
//	verdict.go     what a status should be; condition.go: the patch that makes it so
//	gateway*.go    statuses of the Gateway API. model.Gateway.Attach decides which routes attach to which listeners
//	writer.go      writes, at a limited rate; leader.go elects the one control plane that writes
//
// Invariants:
//   - A correct Istio object without a condition Reconciled is not touched, except for the addresses of a
//     ServiceEntry (addresses.go).
//   - Conditions of other types, and messages of other writers, stay as they are.
//   - A status is written for the generation that it was computed for, or not at all. Addresses may be for the
//     generation before, and are corrected at the next look.
//   - The queue has an object at most once. Its status is computed when it is written.
package status
