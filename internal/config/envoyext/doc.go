// Package envoyext knows what the pinned Envoy is built with, and reads Envoy's messages
// as users write them.
//
// A message of a type that an Envoy lacks makes it refuse the resource that the message is
// in, so that nobody gets anything new of that resource: such messages must not go out. The
// table (extensions.txt) is what the Envoy of ENVOY_VERSION says of itself; a test compares
// the two and rewrites the table, and the imports of types.go, with -update.
//
// It is pure: no I/O, no clock.
package envoyext
