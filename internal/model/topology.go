package model

import "fmt"

// Topology is what stands between clients and a gateway: Istio's gatewayTopology. It is comparable.
type Topology struct {
	Said bool // else nothing is said, and what follows is Istio's default
	// TrustedProxies is how many proxies are before the gateway whose word in X-Forwarded-For is taken: so
	// many addresses from its end is the client's.
	TrustedProxies uint32
	// ClientCertificates is what becomes of X-Forwarded-Client-Cert, in Istio's words; empty: SANITIZE_SET.
	ClientCertificates string
	// ProxyProtocol: each connection begins with the PROXY protocol's header, which says who the client is.
	ProxyProtocol bool
}

// String is short, and tells topologies apart.
func (t Topology) String() string {
	return fmt.Sprintf("hops=%d,certificates=%s,proxy-protocol=%t", t.TrustedProxies, t.ClientCertificates, t.ProxyProtocol)
}
