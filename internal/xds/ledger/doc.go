// Package ledger decides what may be sent next on one xDS stream. It is pure: it has no clock, no
// goroutine and no network. The server passes requests to HandleRenamed and new states of the tables
// to Update, and calls Next for the responses that may be sent.
//
// A stream is a cursor on its tables: for each type it records up to which revision additions and
// removals were sent. Later ones are still to be sent. Exceptions, such as names that were subscribed
// again and differences after a reconnect, are small sets of names, which streams in the same
// situation share. The memory of a stream does not grow with the mesh.
//
// The life of a response is in three files, in this order:
//
//	plan.go    what the next response of a type contains, and what has to wait
//	send.go    Next sends plans; a response in flight; what sending changes for other types
//	answer.go  Handle, ACK, Settle, NACK, and Retry
//
// What has to wait is decided in ordering.go (clusters before routes, and back), prefetch.go
// (endpoints before they are requested), scopes.go (SRDS) and vhds.go (VHDS). Each is a struct with the
// state of its waits. delayed.go ends the waits for an ACK that Envoy holds back. They share the subscriptions and cursors in state.go and watch.go. Types and
// their relations are rows of resource.Types. The other files are variants: sotw.go, reconnect.go (what
// a proxy has from an earlier stream) and rebind.go (other tables). nackmessage.go finds the refused
// resources in Envoy's message. Reports are in status.go, and bounds in limits.go.
//
// Invariants, each with a transcript in testdata:
//
//  1. At most one response of each type is in flight, besides clusters whose ACK is late (13). A
//     resource that changes several times meanwhile is sent once, in its newest form.
//  2. Make before break. A listener, route configuration or virtual host is sent once the
//     clusters that were added before it are ACKed and their endpoints are sent: a proxy
//     processes the responses of a stream in order. Clusters are removed once the listeners
//     and routes of that revision are ACKed. Endpoints of a new cluster follow it before they are
//     requested. If the proxy is known to use them, listeners and
//     routes follow them at once, so that a new service takes one round trip.
//  3. A refused resource is held back until it differs, or Retry sends it again. The other
//     resources of its response are sent again without it. If Envoy's message does not name
//     the resource, the response is bisected to find it. A held resource counts as settled, but
//     no cluster is removed that it may refer to. A virtual host that is removed meanwhile from
//     a held route configuration waits for it, and counts as settled, too.
//  4. After a reconnect only the differences from initial_resource_versions are sent. A proxy may
//     request endpoints last: listeners and routes wait until it did, and has what it lacked.
//  5. A subscribed name that does not exist is answered by a removal, and blocks nothing. A name
//     that is subscribed again is sent again. The endpoints of a changed cluster are sent
//     again: Envoy keeps the new cluster warming until they come.
//  6. Stale nonces are ignored.
//  7. After a change of tables only the differences are sent, in the order of 2.
//  8. Virtual hosts are sent only for route configurations that the proxy has: all of them once it
//     ACKed the route configuration, a removal of "<name>/none" if there are none, and all
//     again after the route configuration was dropped and subscribed again.
//  9. State-of-the-world responses contain all clusters and listeners, and other types by name.
//     The version is a hash of the content.
//  10. Settled is the newest revision up to which everything that concerns the stream is ACKed or
//     held back. Clusters whose ACK is late count once the proxy answered a later response.
//  11. A listener that uses scopes is sent once the scopes are ACKed and the virtual hosts of
//     their route configurations are sent. The listener that requests scopes goes first, as
//     Envoy makes it wait. Scopes, and routes that a listener used, are removed once all
//     listeners are ACKed and have their routes.
//  12. Secrets and their removals wait for nothing. Envoy ACKs a cluster when it has the cluster's
//     secrets, or knows that they do not exist, and keeps secrets that it has.
//  13. Envoy may hold back the ACK of clusters for long, for example until a DNS name is resolved.
//     When the server reports that an ACK is late, further clusters are sent. What waits for the
//     late ones is sent, once the endpoints of those that are new are requested and sent. Each
//     response is answered by its own nonce, in the order of responses.
//  14. Endpoints of a cluster that the proxy has follow the cluster's own change of the same or an
//     older revision, unless the proxy waits for them. They wait for nothing else.
package ledger
