// Package server serves xDS streams: the aggregated discovery service, delta and
// state-of-the-world, on package http2 or on grpc-go.
//
// Package ledger, which is pure, decides what may be sent on a stream. This package passes requests
// and new states of tables to it, assembles its responses from shared buffers, and sends them. The
// work does not grow with the mesh: a change wakes the streams that are bound to the changed tables,
// and each sends what is after its cursor.
//
//	server.go            Server, and how a stream is bound to tables
//	request.go           from a request's bytes to its answer
//	question.go          questions about the control plane, as istioctl asks them on a stream
//	stream.go            a stream: its steps, and its end
//	pendingrevisions.go  published revisions that a stream has not settled
//	delivery.go          how responses are sent; assemble.go encodes them
//	sender.go            how published changes reach streams
//	refusedlog.go        the log of refused proxies
//	nack.go              refused resources: log, retries, reports
//	watchdog.go          waits that take too long
//	routestrategy.go     how routes reach a proxy
//	distribution.go      which proxies have a change; stale.go and proxies.go answer other
//	                     questions
//	transport.go         the interface of transports: http2.go and grpc.go
//
// The way of an ACK through this package is in the comment of package xds.
//
// Locks: Server.publishing and a stream's mu may be held while one of the others is taken. Those are
// never held together: the locks of inbox, registry, sender and disconnectedProxies. Observers and
// Meters are called with Server.publishing or a stream's lock held.
package server
