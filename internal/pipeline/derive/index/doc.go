// Package index finds the objects of a snapshot by what other objects call them, for example the DestinationRules that
// cover a host, and decides which proxies share a group.
//
//	index.go, objects.go   the tables, and how a batch of changes goes into them
//	client.go              the proxies of one group: their key, labels, Sidecar and addresses
//	reader.go, rules.go,   the questions that a unit may ask
//	policies.go
//	facts.go               the names of the questions, and which units asked them
//	groupkey.go, keys.go   which proxies share a group
//	usage.go               which properties of proxies some object asks for
//	discovery.go,          changes of the objects on their way into the index: namespaces outside of the mesh are left
//	exports.go,            out, and default visibility and addresses are added
//	autoaddress.go
//	endpoint*.go           endpoints of services: from slices, workloads and ServiceEntries, with their nodes,
//	addresses.go, nodes.go drain notices and identities
//
// A unit of derivation asks through a Reader. The Reader records the fact behind each answer, so that a change of the fact
// makes the unit dirty, and the objects of the answer, which become origins of the result.
//
// The package is pure: no clock, no I/O. One goroutine changes the index; while units read it, it does not change.
package index
