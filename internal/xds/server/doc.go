// Package server serves xDS streams: the aggregated discovery service, delta and
// state-of-the-world, on package http2 or on grpc-go.
//
// Package ledger, which is pure, decides what may be sent on a stream. This package passes requests
// and new states of tables to it, assembles its responses from shared buffers, and sends them. The
// work does not grow with the mesh: a change wakes the streams that are bound to the changed tables,
// and each sends what is after its cursor.
//
//	server.go        Server, and how a stream is bound to tables
//	stream.go        requests, steps and the end of a stream
//	sender.go        how published changes reach streams
//	delivery.go      how responses are sent; assemble.go encodes them
//	account.go       published revisions that a stream has not settled
//	distribution.go  which proxies have a change; stale.go, refusals.go and resources.go
//	                 answer other questions
//	transport.go     the interface of transports: http2.go and grpc.go
//	retry.go         the watchdog: waits that take too long, and refusals that are retried
//
// Locks: Server.publishing and a stream's mu may be held while one of the others is taken. Those are
// never held together: the locks of inbox, registry, sender and disconnectedProxies. Observers and
// Meters are called with Server.publishing or a stream's lock held.
package server
