// Package sidecar is what runs next to an application, or brings it there:
//
//	inject     adds a sidecar to Pods and to objects with Pod templates
//	intercept  redirects a workload's connections to its sidecar, with rules of nftables or iptables
//	cni        sets these rules as a CNI plugin, so that Pods need no privileges
//	envoy      finds, fetches and starts Envoy, and calls its admin interface; ENVOY_VERSION pins the version
//	agent      one sidecar: configures and supervises its Envoy
//
// Start reading at agent.Run, which shows the life of a sidecar. The packages below agent have one concern each:
//
//	workload        description of the workload, from a Pod or files of the kubelet
//	bootstrap       Envoy's bootstrap
//	bootstrappatch  stream with the patches of EnvoyFilters to the bootstrap
//	identity        gets and renews the certificate
//	sds             serves certificates to Envoy
//	wasm            fetches Wasm modules
//	nameserver      answers DNS questions
//	appprobe        answers the kubelet's probes for the application
//	scrape          merges metrics of the agent, Envoy and the application
//	istiometrics    converts Envoy's metrics to Istio's
//	deregister      removes the workload's endpoints before the drain
//	envoylog        turns Envoy's output into log records
//	workers         load of Envoy's worker threads
//	inspect         debug pages about one Envoy
//
// xds/agentapi declares the contracts between agents and control planes.
//
// A new flag of the agent is a field of agent.Config, applied in Config.resolve; a line in internal/cli/agent/flags.go;
// and a setting in inject if injected sidecars need it.
//
// Layer 6 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package sidecar
