package model

// CaptureMode is how connections reach a listener.
type CaptureMode string

// The capture modes. Default: the mode of the proxy.
const (
	CaptureDefault  CaptureMode = ""
	CaptureIPTables CaptureMode = "IPTABLES"
	CaptureNone     CaptureMode = "NONE" // the application connects to the listener
)

// Sidecar restricts what its workloads can call, and configures how they are called.
type Sidecar struct {
	Meta
	Selector map[string]string // empty: the whole namespace
	Egress   []EgressListener  // empty: all that is exported to the namespace
	Ingress  []IngressListener // empty: from the workload's services

	Outbound    OutboundMode // unset: the mesh's
	EgressProxy *Destination // for unknown hosts

	InboundPool *ConnectionPool
}

// OutboundMode is the handling of unknown destinations.
type OutboundMode string

// The outbound modes; empty: the mesh's.
const (
	OutboundAllowAny     OutboundMode = "ALLOW_ANY"
	OutboundRegistryOnly OutboundMode = "REGISTRY_ONLY"
)

// HostsHere is the namespace of the Sidecar's workload: a Sidecar of the root namespace applies to workloads of all
// namespaces.
const HostsHere = "."

// HostSelector is a "namespace/host" entry of an egress listener.
type HostSelector struct {
	Namespace string // "*": any, "~": none; HostsHere: the workload's; otherwise resolved
	Host      Host
	Exclude   bool // excludes hosts that the other entries select
}

// SidecarPort is a port with its protocol.
type SidecarPort struct {
	Number   uint32
	Name     string
	Protocol Protocol
}

// EgressListener makes services reachable; all their ports if Port is nil.
type EgressListener struct {
	Port    *SidecarPort
	Bind    string // IP address; empty: by capture mode
	Capture CaptureMode
	Hosts   []HostSelector
}

// IngressListener accepts connections for the application.
type IngressListener struct {
	Port     SidecarPort
	Bind     string
	Capture  CaptureMode
	Endpoint string // "address:port" or "unix:///path"; empty: the original destination
	Pool     *ConnectionPool
	// TLS is for clients without sidecars, on ports with disabled mutual TLS; nil: none.
	TLS *ServerTLS
}

// CaptureNone reports whether clients connect to the listener itself.
func (l *IngressListener) CaptureNone(mode Interception) bool {
	return l.Capture == CaptureNone || l.Capture == CaptureDefault && mode == InterceptNone
}

// Inner returns the protocol that the application gets, after TLS is terminated.
func (l *IngressListener) Inner() Protocol {
	switch {
	case l.TLS == nil:
		return l.Port.Protocol
	case l.Port.Protocol == ProtocolHTTPS:
		return ProtocolHTTP
	}
	return ProtocolTCP
}

// IsFor reports whether the Sidecar may apply to workloads with a namespace and labels. root is the namespace of the
// Sidecar for all namespaces.
func (s *Sidecar) IsFor(namespace string, labels map[string]string, root string) bool {
	return (s.Namespace == namespace || s.Namespace == root && len(s.Selector) == 0) && SelectorMatches(s.Selector, labels)
}

// Credentials returns the Secrets of its namespace that the workloads need for their own listeners.
func (s *Sidecar) Credentials() []NeededSecret {
	var out []NeededSecret
	for i := range s.Ingress {
		out = append(out, s.Ingress[i].TLS.Credentials(s.Namespace)...)
	}
	return out
}
