// Package compare answers whether it is safe to move from one control plane to another, or from one version to another:
// which calls the proxies of a mesh would decide differently with the resources of the other.
//
// It compares decisions, never bytes: who is called, under which identity, with which timeout and policy. Each side has the
// Envoy resources of the mesh's proxies, from any control plane.
//
//	ParseDump   reads a proxy from Envoy's config dump
//	Calls       makes calls for each listener, filter chain, route and policy that one of the two sides has
//	Run         follows each call on both sides, by package simulate, and reports what differs
//	Node.Read   reads a proxy from a running control plane
//
// Only Node.Read uses the network. Start reading at Run in run.go.
package compare
