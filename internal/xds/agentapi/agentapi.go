// Package agentapi declares what agents and control planes agree on beside Envoy's xDS protocol:
// the gRPC method by which a workload deregisters, the keys of node metadata, and the names of
// bootstrap patches.
package agentapi

import (
	"fmt"
	"strings"
)

// DeregisterMethod is a unary gRPC method on the xDS port. Its messages are a DeregisterRequest
// and a DeregisterResponse in JSON. The answer comes once every proxy that had the workload's
// endpoints has ACKed their removal, or when DeregisterRequest.WaitMillis is over.
const DeregisterMethod = "/moonsail.v1.Workload/Deregister"

// DeregisterRequest names a workload that is about to end.
type DeregisterRequest struct {
	Node string `json:"node"` // Envoy's node ID
	// Instance distinguishes this run of the proxy from the next one with the same node ID. It equals
	// the node's metadata MetaInstance.
	Instance string `json:"instance,omitempty"`
	// Addresses of the workload, besides that of the node ID.
	Addresses []string `json:"addresses,omitempty"`
	// ServiceAccount of the workload. An agent need not send it: it must be that of its certificate.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// WaitMillis bounds the answer; 0: the control plane's own bound.
	WaitMillis int64 `json:"waitMs,omitempty"`
	// Stay withdraws an earlier request: the workload continues.
	Stay bool `json:"stay,omitempty"`
}

// DeregisterResponse reports which proxies have ACKed the removal of a workload's endpoints.
type DeregisterResponse struct {
	Revision uint64 `json:"revision"`
	ACKed    int    `json:"acked"`
	// Lacking lists proxies that may still call the workload. If it is empty, the workload may end.
	Lacking   []LackingProxy `json:"lacking,omitempty"`
	LackCount int            `json:"lackCount,omitempty"` // Lacking has the first of so many
	// Disconnected counts proxies whose streams ended too long ago to wait for them. Those that
	// run still may call the workload until they connect again.
	Disconnected int `json:"disconnected,omitempty"`
	// Peers counts the other control planes whose proxies are in these numbers. Lacking has an
	// entry for each that did not answer.
	Peers int `json:"peers,omitempty"`
	// Pending reports that some of the lacking proxies may ACK soon.
	Pending bool `json:"pending,omitempty"`

	TookMillis float64 `json:"tookMs"`
}

// LackingProxy is a proxy that has not ACKed, and why.
type LackingProxy struct {
	Proxy    string `json:"proxy"`    // name.namespace
	Position string `json:"position"` // a distribution.SyncState, or "unknown"
	Reason   string `json:"reason,omitempty"`
}

// XDSCluster is the cluster of an Envoy's bootstrap that leads to the control plane, as in Istio.
const XDSCluster = "xds-grpc"

// Keys of node metadata that agents write and control planes read. Keys without the prefix
// MOONSAIL_ are Istio's, with Istio's meaning.
const (
	MetaInstance     = "MOONSAIL_INSTANCE"    // string: names one run of the proxy
	MetaNames        = "MOONSAIL_NAMES"       // bool: the stream is the DNS proxy's
	MetaModules      = "MOONSAIL_MODULES"     // bool: the agent fetches Wasm modules
	MetaFiles        = "MOONSAIL_FILES"       // bool: the agent reads certificate files
	MetaExtensions   = "MOONSAIL_EXTENSIONS"  // bool: the stream asks for what the agent needs, and Envoy does not
	MetaUncounted    = "MOONSAIL_UNCOUNTED"   // bool: Envoy keeps no per-code statistics of clusters
	MetaStatusPort   = "MOONSAIL_STATUS_PORT" // number: the agent's status port
	MetaTracing      = "MOONSAIL_TRACING"     // object: the Pod's own tracing settings
	MetaExactBalance = "INBOUND_LISTENER_EXACT_BALANCE"
	MetaUnprivileged = "UNPRIVILEGED_POD"
	MetaDNSCapture   = "DNS_CAPTURE"
	MetaAutoAllocate = "DNS_AUTO_ALLOCATE"
	MetaHTTP10       = "HTTP10"
	MetaSDS          = "SDS"
)

// BootstrapPatchName names the resource with what one EnvoyFilter changes of a bootstrap.
// Patches apply in the order of their names. order is from 0 to 9999.
func BootstrapPatchName(order int, namespace, name string) string {
	return fmt.Sprintf("%04d/%s/%s", order, namespace, name)
}

// BootstrapPatchFilter returns the EnvoyFilter of a bootstrap patch's name, as NAMESPACE/NAME.
func BootstrapPatchFilter(patch string) string {
	_, filter, _ := strings.Cut(patch, "/")
	return filter
}
