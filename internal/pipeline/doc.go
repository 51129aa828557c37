// Package pipeline processes changes: from an event of a source to the tables of resources from which the
// xDS server sends. Each stage is a package, and data flows downwards:
//
//	store          events -> immutable snapshot of all objects; a batch of events makes a revision
//	  autoaddress    addresses for hosts of ServiceEntries that have none
//	derive         snapshot and changes -> IR of each proxy group that the changes affect
//	ir             the values between derive and translate: clusters, listeners, routes, endpoints
//	translate      IR -> Envoy's protobuf messages: cluster, listener, route, security, telemetry
//	envoyfilter    applies EnvoyFilters to these messages
//	engine         runs the stages in one goroutine, commits the tables, binds streams to them
//	changelog      records each revision through all stages to the last ACK; metrics
//
// Invariants:
//
//  1. Every stage carries the revision, and every value the objects that it was made from. So an ACK or a
//     NACK leads back to the events and objects that caused it.
//  2. All stages but engine and changelog are pure: no I/O, no clock, no goroutine that outlives a call.
//  3. Derive decides, translate spells out. Envoy's types begin in translate, which cannot read the store and
//     so cannot depend on an input that derive did not declare.
//  4. An incremental result equals a computation from scratch. Three decisions are exceptions, because running
//     proxies depend on them: which route configurations stay in shards, which clusters stay not on demand, and
//     what automatic delivery means between its two limits (index.automatic).
//
// Start reading at engine.Run, then engine.batch.
//
// Layer 5 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package pipeline
