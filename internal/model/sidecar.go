package model

// CaptureMode says how traffic gets to a listener.
type CaptureMode string

// The capture modes. Default means what the proxy itself was started with.
const (
	CaptureDefault  CaptureMode = ""
	CaptureIPTables CaptureMode = "IPTABLES"
	CaptureNone     CaptureMode = "NONE" // the application connects to the listener itself
)

// Sidecar narrows what the workloads that it selects see, and how they are reached.
type Sidecar struct {
	Meta
	Selector map[string]string // empty: the whole namespace
	Egress   []EgressListener  // empty: all that is exported to the namespace
	Ingress  []IngressListener // empty: from the workload's services

	Outbound    OutboundMode // unset: the mesh's
	EgressProxy *Destination // for unknown hosts

	InboundPool *ConnectionPool
}

// OutboundMode says what happens to destinations that nobody knows.
type OutboundMode string

// The outbound modes; the empty one means the mesh's.
const (
	OutboundAllowAny     OutboundMode = "ALLOW_ANY"
	OutboundRegistryOnly OutboundMode = "REGISTRY_ONLY"
)

// HostsHere stands for the namespace of the workload that a Sidecar is for: that of the root namespace is
// for workloads of all.
const HostsHere = "."

// HostSelector is a "namespace/host" entry of an egress listener.
type HostSelector struct {
	Namespace string // "*": any, "~": none; HostsHere: of a Sidecar that of the workload, else resolved
	Host      Host
	Exclude   bool // takes hosts away from those that the other entries select
}

// SidecarPort is a port with its protocol.
type SidecarPort struct {
	Number   uint32
	Name     string
	Protocol Protocol
}

// EgressListener makes some services reachable, all their ports where Port is nil.
type EgressListener struct {
	Port    *SidecarPort
	Bind    string // IP address; empty: by capture mode
	Capture CaptureMode
	Hosts   []HostSelector
}

// IngressListener takes traffic for the application.
type IngressListener struct {
	Port     SidecarPort
	Bind     string
	Capture  CaptureMode
	Endpoint string // "address:port" or "unix:///path"; empty: 127.0.0.1 and the listener's port
	Pool     *ConnectionPool
	// TLS is of clients that are no sidecars, for ports where mutual TLS is switched off; nil: none
	// ends here.
	TLS *ServerTLS
}

// Inner is the protocol of what the application gets: what is inside the TLS that ends here.
func (l *IngressListener) Inner() Protocol {
	switch {
	case l.TLS == nil:
		return l.Port.Protocol
	case l.Port.Protocol == ProtocolHTTPS:
		return ProtocolHTTP
	}
	return ProtocolTCP
}

// IsFor reports whether the Sidecar may be that of workloads of a namespace with some labels. root is the
// namespace of the Sidecar that is for all.
func (s *Sidecar) IsFor(namespace string, labels map[string]string, root string) bool {
	return (s.Namespace == namespace || s.Namespace == root && len(s.Selector) == 0) && SelectorMatches(s.Selector, labels)
}

// Credentials are the Secrets that the Sidecar's workloads need for their own listeners, of its
// namespace.
func (s *Sidecar) Credentials() []NeededSecret {
	var out []NeededSecret
	for i := range s.Ingress {
		out = append(out, s.Ingress[i].TLS.Credentials(s.Namespace)...)
	}
	return out
}
