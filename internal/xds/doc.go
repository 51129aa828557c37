// Package xds delivers Envoy resources to proxies over xDS: the aggregated discovery service, in
// its delta and state-of-the-world variants.
//
// The pipeline commits encoded resources to tables, and publishes a revision. Each stream is a
// cursor on the tables that its proxy is bound to. Its ledger decides what may be sent, and the
// server sends it.
//
//	resource     resource types, in one table, and encoded resources
//	resourcename writes and parses the structured names of resources
//	names        immutable sets of names that streams share
//	table        versioned resources, and what changed after a revision
//	ledger       what may be sent next on one stream; pure
//	server       streams, senders, authorization, and the state of proxies
//	http2        the gRPC server below the streams
//	epoll        goroutines that wait for many sockets, on Linux
//	fetch        reads a proxy's resources from a control plane, as its Envoy would
//	distribution what the server reports, and the interface for questions about proxies
//	routeshard   the division of large route configurations into shards
//	callstats    how Envoys count calls, for the control plane and agents
//	agentapi     the API between agents and control planes beside xDS
//	wire         fields of encoded protobuf messages
//	nametable    the name table that agents resolve names with
//	wasmplugin   what the control plane and agents agree on about WebAssembly modules
//
// Start reading at package ledger, which has the rules, then server.Server.Publish.
//
// # The way of an ACK
//
// Files are those of internal. An ACK passes these functions, in this order:
//
//	xds/http2/eventloop.go           conn.handleEvent          epoll reports bytes of an idle connection
//	xds/http2/eventloop.go           conn.takeTurn             reads them in the event loop, if no message may wait
//	xds/http2/reader.go              frameReader.readFrames    parses frames until no bytes are left
//	xds/http2/reader.go              frameReader.messages      finds the messages of a DATA frame
//	xds/server/request.go            http2Receiver.Receive     receives a message: a discovery request
//	xds/server/request.go            stream.handle             parses the request
//	xds/ledger/answer.go             Ledger.HandleRenamed      matches the nonce with the response in flight
//	xds/ledger/answer.go             Ledger.accept             the proxy has what the response contained
//	xds/http2/reader.go              frameReader.endBatch      input.fill finds no more bytes: the Receiver answers
//	xds/server/request.go            http2Receiver.EndBatch    answers all requests that arrived together
//	xds/server/stream.go             stream.step               sends what the ACK admits, then settles
//	xds/ledger/send.go               Ledger.Next               the responses that may be sent now, often none
//	xds/server/pendingrevisions.go   pendingRevisions.settle   the published revisions that this ACK ends
//	xds/ledger/answer.go             Ledger.Settle             the newest revision that is ACKed or held back
//	xds/server/pendingrevisions.go   pendingRevisions.report   passes them to the distribution.Observer
//	pipeline/changelog/changelog.go  Log.Settled               the Observer: counts the outcome of each revision
//	pipeline/changelog/changelog.go  Log.finish                the last proxy has answered: log line and metrics
//
// On grpc-go, Server.pull in xds/server/request.go replaces package http2: it calls stream.handle and
// stream.answer for each request.
//
// # The way of a NACK
//
// A NACK takes the way of an ACK, with these differences:
//
//	xds/server/nack.go               stream.reportNACK         stream.handle found an error: log line and metric
//	xds/ledger/answer.go             Ledger.refuse             instead of accept: holds back refused resources
//	xds/ledger/nackmessage.go        attribute                 finds the resources that Envoy's message names
//	xds/ledger/plan.go               plan.group                the next step sends the other resources, or a half
//	xds/server/pendingrevisions.go   pendingRevisions.outcome  the revision ends as NACKed
//	xds/server/nack.go               Server.Refusals           reports refused resources to statuses and explain
//
// # The way of a retry
//
// The server sends a resource that Envoy refused for a temporary reason again:
//
//	xds/server/watchdog.go           Server.watch              checks each stream, at least every 2 s
//	xds/server/nack.go               stream.retryRefused       decides when: the refusal is temporary, and its interval is over
//	xds/ledger/answer.go             Ledger.Retry              decides what: the resource is to be sent alone
//	xds/server/stream.go             stream.step               sends it; the answer comes as described above
//
// Layer 2 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package xds
