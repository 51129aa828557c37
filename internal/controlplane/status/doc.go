// Package status says what is wrong with an Istio object in the object's own status, as
// Istio's API defines it: in the condition Reconciled and in validationMessages. Objects of the
// Gateway API get the statuses that this API defines.
//
// How the parts fit: board.go knows of each object what the API server has of it, findings.go what
// is wrong with it, and queue.go queues those whose status should differ; verdict.go says what a
// status should be, and condition.go what it is and how it becomes that; writer.go writes,
// at a limited rate; check.go finds out what is wrong between objects, and what proxies
// refuse; gatewayworld.go, gatewaylistener.go and gatewayroute.go say which routes of the Gateway API
// attach to which listeners, and gatewaystatus.go writes that down; leader.go sees to it that only one control plane writes.
//
// Invariants:
//   - An Istio object that is fine, and that has no condition Reconciled, is left alone, but for the addresses of a
//     ServiceEntry (addresses.go).
//   - Conditions of other types, and messages that others wrote, stay as they are.
//   - A status is written for the generation that it was worked out for, or not at all; addresses may be for the one
//     before, and are put right at the next look.
//   - The queue has an object at most once; its status is worked out when it is written.
package status
