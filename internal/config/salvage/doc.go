// Package salvage takes what has errors out of a document of a security policy or a route, so that the rest can be used
// until a version without errors arrives. If a part can be read in two ways, the stricter one is used.
package salvage
