package bootstrap

import (
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
)

// Options are the facts that a bootstrap is made of.
type Options struct {
	Node        Node
	IPs         []string // of the workload; they replace {pod_ip} in annotations
	Annotations map[string]string
	ProxyConfig *meshconfig.ProxyConfig

	Bind           string // address of the Prometheus listener
	PrometheusPort uint16
	AdminHost      string
	AdminPort      uint16
	StatusHost     string // where Envoy reaches the agent's status port
	StatusPort     uint16
	MetricsPath    string // of Envoy's metrics on the status port

	MaxConnections int64 // of clients, to all listeners but Prometheus' and the admin interface; 0: no limit

	XDS       ControlPlane
	SDSSocket string // the agent's socket; empty: no SDS cluster
	// Buckets of histograms, the longest prefix first: see HistogramBuckets.
	Buckets []*metricsv3.HistogramBucketSettings
	// Patches of EnvoyFilters, in the order in which they are merged.
	Patches []*bootstrapv3.Bootstrap
}

// Node is what Envoy sends to the control plane about itself.
type Node struct {
	ID       string
	Cluster  string
	Locality model.Locality
	Metadata map[string]any // values as encoding/json decodes them
}

// ControlPlane is the address of the control plane, and how Envoy verifies it.
type ControlPlane struct {
	Socket string // path of a Unix socket; empty: Host and Port
	Host   string
	Port   uint16

	TLS         bool
	ServerNames []string // the certificate must be valid for one of them
	RootCert    string   // file with roots, unless Identity is set
	Identity    bool     // Envoy takes its certificate and the roots from SDS
}
