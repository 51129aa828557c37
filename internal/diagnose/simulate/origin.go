package simulate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Istio's metadata of routes and clusters tells which objects they were made of.
const (
	istioMetadata = "istio"
	configField   = "config"      // the path of a VirtualService or DestinationRule at the API server
	tlsField      = "backend_tls" // that of a BackendTLSPolicy
)

// origin is the path of the object in Istio's metadata; "" where there is none.
func origin(m *corev3.Metadata) string { return originIn(m, configField) }

func originIn(m *corev3.Metadata, field string) string {
	return m.GetFilterMetadata()[istioMetadata].GetFields()[field].GetStringValue()
}

// serviceHost is the host of the service that a cluster leads to, by Istio's metadata.
func serviceHost(c *clusterv3.Cluster) string {
	list := c.GetMetadata().GetFilterMetadata()[istioMetadata].GetFields()["services"].GetListValue().GetValues()
	if len(list) == 0 {
		return ""
	}
	return list[0].GetStructValue().GetFields()["host"].GetStringValue()
}
