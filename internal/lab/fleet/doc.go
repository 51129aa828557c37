// Package fleet simulates sidecars: delta-ADS clients that subscribe and answer as
// Envoy does, each on a TCP connection of its own, thousands of them in one process.
//
// A proxy asks for clusters; for the endpoints of those that want some; once these are
// there, for listeners; for scopes where a listener uses some; for the route configurations
// that these name; and for virtual hosts where a route configuration gets them by VHDS.
// It ACKs each response at once, and on a new stream lists what it holds.
//
// It is lean, because it shares the machine with what it measures: one goroutine and no
// gRPC library a proxy (x/net's HTTP/2 framer); what was sent to any of them is parsed
// once, in the fleet's Catalog, and a proxy remembers a number for each resource.
package fleet
