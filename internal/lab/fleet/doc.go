// Package fleet simulates sidecars: delta-ADS clients that subscribe and answer as
// Envoy does, each on a TCP connection of its own, thousands of them in one process.
//
// A proxy asks for clusters; for the endpoints of those that want some; once these are
// there, for listeners; for scopes where a listener uses some; for the route configurations
// that these name; and for virtual hosts where a route configuration gets them by VHDS.
// It ACKs each response at once, and on a new stream lists what it holds.
//
// It is lean, because it shares the machine with what it measures: a loop for each CPU waits for
// all streams in plain text (package poll), reads what has come with one call and answers with
// one, without allocations and without a gRPC library (x/net's HTTP/2 framer, for what is no
// DATA); what was sent to any of them is parsed once, in the fleet's Catalog, and a proxy
// remembers a number for each resource. With TLS, and where there are no loops, each proxy's
// goroutine waits for its stream.
package fleet
