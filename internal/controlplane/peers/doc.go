// Package peers knows the other control planes of the mesh, and asks them: each knows its own
// proxies alone.
//
// How the parts fit: peers.go keeps the list of who there is, peer.go one of them and its
// connection, hello.go tells who lives, call.go asks all at once and counts them.
//
// Invariants:
//   - What a peer asks is answered from what is known here, and never passed on.
//   - A peer that is listed and does not answer is told with its name; what refuses
//     connections has no proxies, and is none.
//   - With TLS, both ends show certificates that only who has the authority's key can make.
package peers
