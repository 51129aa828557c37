// Package base has what any program needs, whatever it does. It knows nothing of a mesh, and imports the standard library only.
//
//	atomicfile  files that are replaced in one step
//	clock       waits that end with a context
//	connlimit   bounds of open connections
//	defect      faults that tests plant on purpose; in no program that users have
//	httpserve   HTTP servers that end with a context
//	logonce     which errors of a repeated attempt are logged
//	peeraddr    addresses of peers
//
// The packages do not depend on each other. Start reading at the one that you need.
//
// Layer 0 of ARCHITECTURE.md: this room imports no other room.
package base
