// Package model holds the mesh's own types: what Kubernetes, Istio and file
// sources are decoded into, and what every later stage reads.
//
// It is pure data. It imports nothing of ours, knows neither Envoy nor
// Kubernetes clients, and starts no goroutines.
//
// Invariant: an object is immutable once the store has it. A change makes a new
// object. Slices and maps inside are therefore shared freely.
//
// Start reading at Object in object.go.
//
// Layer 1 of ARCHITECTURE.md: this room imports no other room.
package model
