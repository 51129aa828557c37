package simulate

import clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

// istioALPNType is the type of a filter of Istio's proxy. It replaces what a proxy offers upstream by ALPN, so that the server's
// proxy knows that the connection carries HTTP.
const istioALPNType = "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"

// meshALPN is what the filter offers, by whether the upstream protocol is HTTP/2. istiod always configures these values.
var meshALPN = map[bool][]string{
	false: {"istio-http/1.1", "istio", "http/1.1"},
	true:  {"istio-h2", "istio", "h2"},
}

// overridesALPN reports whether the filter applies to a cluster: Istio excludes those whose TLS settings users wrote.
func overridesALPN(c *clusterv3.Cluster) bool {
	return c.GetMetadata().GetFilterMetadata()[istioMetadata].GetFields()["alpn_override"].GetStringValue() != "false"
}
