// Package envoyext knows the extensions that the pinned Envoy is built with, and reads Envoy's messages as users
// write them.
//
// Envoy refuses a resource that contains a message of a type that it lacks, and keeps the previous version of the
// resource. Such messages must not be sent. The table (extensions.txt) is the list that the Envoy of ENVOY_VERSION
// reports. A test compares the two; with -update it rewrites the table and the imports of types.go.
//
// It is pure: no I/O, no clock.
package envoyext
