// Package ledger decides what may be sent next on one xDS stream. It is pure: without
// clock, goroutine or network. It is told of requests (Handle) and of new states of the
// tables that the stream is bound to (Update), and asked for the responses that may go
// (Next).
//
// A stream is a cursor on its tables: for each type it knows up to which revision
// additions and removals were sent. What it needs is what came after; what does not fit
// this (names subscribed anew, differences found on reconnecting or rebinding) is in
// small sets of names, shared by the streams in the same situation. So a stream's memory
// does not grow with the mesh.
//
// Invariants, each with a transcript in testdata:
//
//  1. At most one response is in flight for each type; what changed twice meanwhile is
//     sent once, as it is then.
//  2. Make before break. A listener, route configuration or virtual host is sent once
//     the clusters added before it are ACKed, behind their endpoints: a proxy takes in
//     order what comes on one stream. (One that refuses the endpoints has the route
//     before that is known.) Clusters are removed once listeners and routes of that
//     revision are ACKed. Endpoints never wait: those of a new cluster go right behind it,
//     before they are asked for. A proxy that was seen to make use of them is sent listeners
//     and routes right behind them, too: a new service takes one trip.
//  3. A resource that was NACKed is held back until it differs (or TryAgain is called). What was NACKed together
//     with it is sent again without it; where Envoy's message does not tell which it was,
//     halves are sent until it is found. A held resource counts as settled, but while
//     there is one that may refer to it no cluster is removed.
//  4. On reconnecting only what differs from initial_resource_versions is sent. A proxy may ask for
//     endpoints after everything else: listeners and routes wait until it has, and has those it lacks.
//  5. A name that is subscribed and does not exist is answered by a removal, and blocks
//     nothing. A name that is subscribed again is sent again. A changed cluster's
//     endpoints are sent again: Envoy keeps the new cluster warming until they come.
//  6. Stale nonces are ignored.
//  7. Bound to other tables, only the differences are sent, in the order of 2.
//  8. Virtual hosts go only to route configurations that the proxy holds: all of them
//     when it has ACKed the route configuration's shell, a removal of "<name>/none" where
//     there are none, and all again when it was dropped and subscribed again.
//  9. State-of-the-world: clusters and listeners whole, the others by name; the version
//     is a hash of what the response holds.
//  10. Settled is the newest revision up to which all that concerns the stream is ACKed
//     or held back.
//  11. A listener that uses scopes is sent once these are ACKed, and the virtual hosts of
//     their route configurations are sent, unless it is one that asks for scopes: Envoy
//     has it wait itself. So it has all as it starts: they go before the first scopes, also
//     where it connects again before it has those. Scopes, and routes that their listener
//     had, go when all listeners are ACKed and have their routes: until then the old ones
//     are in use.
//  12. Secrets wait for nothing, and nor do their removals: Envoy ACKs clusters when the secrets
//     are there that they name, or are said not to be, and keeps those that it has.
package ledger
