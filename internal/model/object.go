// Package model holds the mesh's own types: what Kubernetes, Istio and file
// sources are decoded into, and what every later stage reads.
//
// It is pure data. It imports nothing of ours, knows neither Envoy nor
// Kubernetes clients, and starts no goroutines.
//
// Invariant: an object is immutable once the store has it. A change makes a new
// object. Slices and maps inside are therefore shared freely.
package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Kind is the Kubernetes kind of a source object.
type Kind string

// The kinds that the mesh reads.
const (
	KindNamespace          Kind = "Namespace"
	KindService            Kind = "Service"
	KindEndpointSlice      Kind = "EndpointSlice"
	KindPod                Kind = "Pod"
	KindNode               Kind = "Node"
	KindMeshConfig         Kind = "ConfigMap" // the one that has the mesh's configuration
	KindServiceEntry       Kind = "ServiceEntry"
	KindWorkloadEntry      Kind = "WorkloadEntry"
	KindVirtualService     Kind = "VirtualService"
	KindDestinationRule    Kind = "DestinationRule"
	KindSidecar            Kind = "Sidecar"
	KindPeerAuthentication Kind = "PeerAuthentication"
	KindTelemetry          Kind = "Telemetry"
	KindDrainNotice        Kind = "Departure" // see Departure
)

// Kinds lists every kind in a fixed order: the order of pages and of reports.
var Kinds = []Kind{
	KindNamespace, KindService, KindEndpointSlice, KindPod, KindNode, KindMeshConfig, KindServiceEntry,
	KindWorkloadEntry, KindVirtualService, KindDestinationRule, KindSidecar, KindTelemetry, KindDrainNotice,
	KindPeerAuthentication, KindAuthorizationPolicy, KindRequestAuthentication, KindKeySet,
	KindEnvoyFilter, KindSecret, KindProxyConfig, KindWasmPlugin, KindGateway,
	KindKubernetesGateway, KindHTTPRoute, KindReferenceGrant, KindGRPCRoute, KindTLSRoute, KindTCPRoute,
	KindBackendTLSPolicy,
}

// Key names one source object.
type Key struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is "Kind/namespace/name", as in logs and error messages.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s/%s", k.Kind, k.Name)
	}
	return fmt.Sprintf("%s/%s/%s", k.Kind, k.Namespace, k.Name)
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		strings.Compare(string(k.Kind), string(o.Kind)),
		strings.Compare(k.Namespace, o.Namespace),
		strings.Compare(k.Name, o.Name),
	)
}

// Meta is what all source objects have.
type Meta struct {
	Key
	Labels          map[string]string
	Annotations     map[string]string
	ResourceVersion string    // opaque; a content hash for files
	Created         time.Time // older objects win conflicts; zero for files
	Origin          string    // where a person finds it: "file.yaml:12" or "kubernetes"
}

// configNames are the kinds that the metadata of resources names, as Istio's "istio.config" calls them.
var configNames = map[Kind]string{
	KindVirtualService: "virtual-service", KindHTTPRoute: "http-route", KindGRPCRoute: "grpc-route", KindDestinationRule: "destination-rule",
	KindTLSRoute: "tls-route", KindTCPRoute: "tcp-route", KindBackendTLSPolicy: "backend-tls-policy",
}

// ConfigName is how metadata of resources calls the kind; empty: it has none.
func (k Kind) ConfigName() string { return configNames[k] }

// KindOfConfig is the kind that metadata of resources calls by a name; empty: there is none.
func KindOfConfig(name string) Kind {
	for k, n := range configNames {
		if n == name {
			return k
		}
	}
	return ""
}

// Object is a source object. The set of implementations is closed: one for each Kind.
type Object interface {
	// Metadata is never nil.
	Metadata() *Meta
}

// Metadata implements Object for every type that embeds Meta.
func (m *Meta) Metadata() *Meta { return m }

// CompareAge puts the object first that wins where two claim the same thing: the earlier
// created one, then the smaller key.
func CompareAge(a, b Object) int {
	ma, mb := a.Metadata(), b.Metadata()
	return cmp.Or(ma.Created.Compare(mb.Created), ma.Key.Compare(mb.Key))
}

// Older tells whether a wins over b; see CompareAge.
func Older(a, b Object) bool { return CompareAge(a, b) < 0 }

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Meta
	Distribution Distribution // of its services that say nothing
}

// LabelNamespace is the label that every namespace has, with its name.
const LabelNamespace = "kubernetes.io/metadata.name"

// ImpliedLabels are those of a namespace that has no object of its own.
func ImpliedLabels(namespace string) map[string]string {
	return map[string]string{LabelNamespace: namespace}
}

// Revision numbers the batches of changes that went into the store. It only grows
// while a control plane lives; two control planes' revisions cannot be compared.
type Revision uint64
