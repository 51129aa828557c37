// Package dependencies remembers which services workloads call, and shares that between control planes.
//
// Two sources teach it: the names of clusters on demand that proxies ask for (memory.go), and the metrics of connected
// proxies (scrape.go), whichever way those get their clusters. A proxy that gets clusters on demand starts with those that
// its workload is known to use. People read the same as a report (report.go).
//
// Memory is bounded: see the constants in memory.go. What was not called for Keep is forgotten. Keeper (keeper.go) writes it
// to a ConfigMap or a file, from which a restarted control plane and the other ones read it.
//
// Start reading at Memory.
package dependencies
