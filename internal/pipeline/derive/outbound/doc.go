// Package outbound derives what applications of a proxy group can call: clusters, listeners and routes. It is pure: a host,
// a listener and a route are functions of a Reader and of what earlier units found.
//
//	host.go         everything that one host adds to a group; start reading at Host
//	cluster.go      its clusters
//	placement.go    the listeners at which clients reach a port
//	virtualhost.go  its virtual hosts, and the one for unknown hosts
//	route.go,       routes of VirtualServices, also for gateways
//	delegate.go,
//	destination.go
//	l4.go           filter chains for TCP and TLS
//	demand.go       what the hosts want of a listener
//	listener.go     a listener from all demands
//	fixed.go        clusters and listeners that every group has
package outbound
