// Package cni brings interception into Pods without an init container that needs NET_ADMIN: a chained CNI plugin sets
// the rules before the first container of a Pod starts, as istio-cni does.
//
//	plugin   the CNI plugin: a small program (cmd/moonsail-cni) that the container runtime starts for each Pod
//	install  puts the plugin and its entry in the list of CNI plugins on a node, and keeps them there
//	node     the node agent: answers plugins, installs, and repairs Pods that started before
//
// This package is the protocol between plugin and node agent. The plugin asks about a Pod over a Unix socket, so that it
// needs no access to the API server. It sets the rules itself, in the Pod's network namespace, and reports the result.
//
// The injection, which knows what it writes into Pods, decides whether a Pod's connections are redirected:
// inject.RedirectionOf.
//
// Invariant: a Pod that needs rules never starts without them. If the agent does not answer, or the rules cannot be set,
// the plugin fails, and the kubelet tries again. One exception is that of istio-cni: an agent that ends without its rights (401,
// 403) takes its DaemonSet as removed, and removes the plugin.
package cni
