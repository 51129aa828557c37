// Package derive applies Istio's rules: it computes, for each group of proxies, the configuration that the group receives,
// as values of package ir. Translate only writes these values in Envoy's types.
//
// It is incremental. A unit is the smallest piece that is computed separately: one host of one group, its endpoints, one
// listener. A unit gets its input from a Reader of package index, which records each fact that the unit asks for. A change
// of objects changes facts, and only the units that asked for these are computed again. A property test checks that the
// result equals a computation from scratch.
//
// This package is the driver: which units exist, in which order they are derived, what a group remembers of their results,
// and which other units a result makes dirty. What a unit gives is computed by functions of the subpackages:
//
//	index     finds objects, records facts and origins, and decides which proxies share a group
//	outbound  what applications can call: clusters, listeners, routes
//	inbound   what a sidecar listens for on behalf of its workload
//	gateway   what gateways listen for, and where they route
//	policy    authorization, telemetry, plugins, EnvoyFilters, Secrets, TLS and limits of clusters
//	endpoint  endpoints of a cluster, by locality and priority
//	dns       names that a sidecar's DNS proxy answers
//
//	Deriver > proxyGroup > gateway, inbound > outbound > endpoint, policy > index
//
// The packages are pure: no clock, no I/O. One goroutine drives a Deriver. It derives groups in parallel.
//
// Start reading at Deriver.Apply, then proxyGroup.derive, then the function of the unit that you look for:
//
//	deriver.go     a batch, and the groups that it affects
//	units.go       the units, and what a batch makes dirty
//	proxygroup.go  the order of units in a group
//	hosts.go       results of hosts: listeners, references, secrets, domains
//	routes.go      route configurations of listeners, and what EnvoyFilters add
//	router.go      the virtual hosts, routes and listeners of gateways
//	filters.go     telemetry and plugins, and what every group has
//	sharding.go    large route configurations in shards
//	delta.go       what a group hands to translate
package derive
