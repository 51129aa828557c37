// Package xds delivers Envoy resources to proxies over xDS: the aggregated discovery service, in
// its delta and state-of-the-world variants.
//
// The pipeline commits encoded resources to tables, and publishes a revision. Each stream is a
// cursor on the tables that its proxy is bound to. Its ledger decides what may be sent, and the
// server sends it.
//
//	resource     resource types, in one table, and encoded resources
//	names        immutable sets of names that streams share
//	table        versioned resources, and what changed after a revision
//	ledger       what may be sent next on one stream; pure
//	server       streams, senders, authorization, and the state of proxies
//	http2        the gRPC server below the streams
//	epoll        goroutines that wait for many sockets, on Linux
//	distribution what the server reports, and the interface for questions about proxies
//	routeshard   the division of large route configurations into shards
//	agentapi     the API between agents and control planes beside xDS
//	wire         fields of encoded protobuf messages
//	nametable    the name table that agents resolve names with
//	wasmplugin   what the control plane and agents agree on about WebAssembly modules
//
// Packages of this room import each other, internal/model, and nothing else of ours. Start
// reading at package ledger, which has the rules, then server.Server.Publish.
package xds
