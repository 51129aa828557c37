// Package cli is the command line of moonsail, with one package per group of commands:
//
//	serve        runs the control plane
//	agent        runs a sidecar or a gateway
//	cni          runs what is around the CNI plugin
//	configure    checks and changes users' YAML
//	inspect      asks a running mesh
//	proxyconfig  proxy-config, the largest command that asks
//	install      makes manifests and installs Envoy
//	istioctl     istioctl's names for commands
//	client       how commands reach control planes, clusters and files
//	istioenv     environment variables of Istio's programs that have no effect
//
// Package internal/terminal has what commands share with moonsail-lab: errors, output, environment variables.
//
// Start reading at NewRootCommand in root.go.
//
// Layer 10 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package cli
