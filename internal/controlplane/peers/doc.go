// Package peers finds the other control planes of the mesh, and asks them about their proxies.
//
// Start reading at Peers.Run in peers.go, which keeps the list of peers. peer.go is one peer and its
// connection, hello.go checks liveness, and call.go asks all peers at once.
//
// Invariants:
//   - A question of a peer is answered from local knowledge, and never passed on.
//   - A listed peer that does not answer is reported by name. A peer that refuses connections has no proxies, and
//     counts as gone.
//   - With TLS, both ends have certificates that only the authority's key can make.
package peers
