// Package xds is resources, their versions, and their delivery to Envoy:
//
//	resource   the types of resources (one table), encoding, content hashes
//	names      immutable, shared sets of names
//	table      the versioned resources of one proxy group
//	ledger     the state of one stream, and what may be sent next; pure
//	server     ADS, delta and state of the world: all stream I/O
//	http2      a gRPC server on HTTP/2 frames, for thousands of long streams
//	agentapi   what agents and control planes agree on beside xDS
package xds
