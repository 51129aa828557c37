// Package sidecar is what runs next to an application, or gets it there:
//
//	inject     adds a sidecar to Pods, and to what makes Pods
//	intercept  leads a workload's connections through its sidecar, by rules of nftables or iptables
//	envoy      finds, fetches, starts and talks to Envoy; ENVOY_VERSION pins it
//	agent      one sidecar: bootstrap, supervision, readiness, certificates, metrics and drain of its Envoy
//
// Start reading at agent.Run. Its parts are packages below agent: identity gets the certificate, sds serves it
// to Envoy, nameserver answers DNS, wasm fetches modules, bootstrappatch asks for changes of the bootstrap.
// What agents and control planes agree on is declared in xds/agentapi.
//
// A new flag of the agent is a field of agent.Config, a line in internal/cli/agent/flags.go, and, if injected
// sidecars take it, a setting in inject.
package sidecar
