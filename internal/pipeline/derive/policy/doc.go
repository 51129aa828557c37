// Package policy derives what policies decide for the proxies of a group: authorization and JWT, telemetry, Wasm plugins,
// EnvoyFilters, Secrets, and how connections to other services are secured and limited. It is pure.
//
//	authorization.go  which calls a workload accepts
//	listener.go       what all listeners have, including telemetry and plugins
//	telemetry.go,     what Telemetries ask for: metrics, access logs, traces
//	metrics.go,
//	accesslog.go,
//	tracing.go
//	wasm.go           plugins of listeners, and the modules that agents fetch
//	envoyfilter.go    which patches apply, and what they add
//	secret.go         which Secrets proxies may have
//	traffic.go        policies of DestinationRules, and the TLS of clusters
package policy
