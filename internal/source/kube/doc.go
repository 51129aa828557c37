// Package kube is the source of a Kubernetes cluster: it lists and watches an API server.
//
// client.go connects to the API server, and kinds.go lists the kinds to read; discovery.go finds the installed ones.
// source.go runs one client-go Reflector for each kind, which keeps a sink up to date. entry.go decodes each object once,
// and sink.go detects changes and feeds the intake. sink.go and heartbeat.go measure delays; status.go describes the
// connection. credentials.go and the files named after it read Secrets; rootcerts.go writes the mesh's roots. read.go
// lists everything once, without watches. copy.go keeps Pods and Nodes for the programs around the CNI plugin, nodeagent.go
// and taintednodes.go.
//
// Invariants:
//   - No Kubernetes object outlives its decoding: a sink holds resource versions and the model's objects, which the store
//     shares.
//   - A mistake, or an unavailable API server, removes nothing that is in force: an object with errors keeps its last valid
//     version. Without one, for example after a restart, the valid parts of policies apply.
//   - A list replaces: what it does not contain is removed, so that nothing stale stays after an outage.
//   - No proxy is served before all kinds were listed once.
package kube
