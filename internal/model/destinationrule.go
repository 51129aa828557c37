package model

import "time"

// DestinationRule says how to talk to a host once it has been chosen.
type DestinationRule struct {
	Meta
	Host             Host
	Policy           TrafficPolicy
	Ports            map[uint32]TrafficPolicy // by service port; does not inherit from Policy
	Subsets          []Subset
	WorkloadSelector map[string]string // clients that it is for; empty: all
	Visibility       Visibility
}

// Subset is a named part of a service's endpoints.
type Subset struct {
	Name   string
	Labels map[string]string
	Policy TrafficPolicy
	Ports  map[uint32]TrafficPolicy
}

// TrafficPolicy is a set of policies, nil where nothing is said.
type TrafficPolicy struct {
	LoadBalancer     *LoadBalancer
	ConnectionPool   *ConnectionPool
	OutlierDetection *OutlierDetection
	TLS              *ClientTLS
	Tunnel           *Tunnel
	ProxyProtocol    uint32 // 0: none, else the version to send
	RetryBudget      *RetryBudget
}

// Merge lays over on top of p: each part that over names replaces p's whole part.
func (p TrafficPolicy) Merge(over TrafficPolicy) TrafficPolicy {
	if over.LoadBalancer != nil {
		p.LoadBalancer = over.LoadBalancer
	}
	if over.ConnectionPool != nil {
		p.ConnectionPool = over.ConnectionPool
	}
	if over.OutlierDetection != nil {
		p.OutlierDetection = over.OutlierDetection
	}
	if over.TLS != nil {
		p.TLS = over.TLS
	}
	if over.Tunnel != nil {
		p.Tunnel = over.Tunnel
	}
	if over.ProxyProtocol != 0 {
		p.ProxyProtocol = over.ProxyProtocol
	}
	if over.RetryBudget != nil {
		p.RetryBudget = over.RetryBudget
	}
	return p
}

// LBAlgorithm is how endpoints are chosen.
type LBAlgorithm string

// The algorithms. The empty one means the default, LEAST_REQUEST.
const (
	LBLeastRequest LBAlgorithm = "LEAST_REQUEST"
	LBRoundRobin   LBAlgorithm = "ROUND_ROBIN"
	LBRandom       LBAlgorithm = "RANDOM"
	LBPassthrough  LBAlgorithm = "PASSTHROUGH"
	LBRingHash     LBAlgorithm = "RING_HASH"
	LBMaglev       LBAlgorithm = "MAGLEV"
)

// LoadBalancer settings of a cluster. Hash is set for the two hashing algorithms.
type LoadBalancer struct {
	Algorithm LBAlgorithm
	Hash      *HashPolicy
	RingSize  uint64 // minimum, RING_HASH; 0: the default
	TableSize uint64 // MAGLEV; 0: the default
	Locality  *LocalityLB
	Warmup    *Warmup
}

// HashPolicy says what of a request is hashed; exactly one is set.
type HashPolicy struct {
	Header     string
	QueryParam string
	SourceIP   bool
	Cookie     *HashCookie
}

// HashCookie hashes a cookie, and makes it where TTL is set.
type HashCookie struct {
	Name, Path string
	TTL        *time.Duration
	Attributes []HeaderValue
}

// LocalityLB prefers near endpoints. Enabled nil means on where outlier detection is.
type LocalityLB struct {
	Enabled          *bool
	Distribute       []LocalityDistribute
	Failover         []LocalityFailover
	FailoverPriority []string
}

// LocalityDistribute gives weights to localities, for clients in From.
type LocalityDistribute struct {
	From string
	To   map[string]uint32
}

// LocalityFailover names the region after From.
type LocalityFailover struct{ From, To string }

// Warmup raises a new endpoint's share slowly.
type Warmup struct {
	Duration       time.Duration
	MinimumPercent float64 // 0: the default
	Aggression     float64 // 0: the default
}

// ConnectionPool limits; zero values mean Envoy's or the mesh's default.
type ConnectionPool struct {
	MaxConnections        uint32
	ConnectTimeout        time.Duration
	MaxConnectionDuration time.Duration
	TCPIdleTimeout        time.Duration
	Keepalive             *TCPKeepalive

	MaxPendingRequests       uint32
	MaxRequests              uint32
	MaxRequestsPerConnection uint32
	MaxRetries               uint32
	HTTPIdleTimeout          *time.Duration
	Upgrade                  H2Upgrade
	UseClientProtocol        bool
	MaxConcurrentStreams     uint32
	HTTP2Keepalive           *HTTP2Keepalive
}

// LimitsConnections tells whether there are limits that count on HTTP/1.1's one request at a time for each
// connection.
func (p *ConnectionPool) LimitsConnections() bool {
	return p.MaxConnections > 0 || p.MaxPendingRequests > 0 || p.MaxRequestsPerConnection > 0
}

// H2Upgrade tells whether HTTP/1.1 is spoken as HTTP/2 upstream.
type H2Upgrade uint8

// The upgrade policies.
const (
	H2UpgradeDefault H2Upgrade = iota
	H2UpgradeNever
	H2UpgradeAlways
)

// TCPKeepalive are socket options; zero means the system's default.
type TCPKeepalive struct {
	Probes         uint32
	Time, Interval time.Duration
}

// HTTP2Keepalive are pings on idle connections.
type HTTP2Keepalive struct{ Interval, Timeout time.Duration }

// OutlierDetection ejects endpoints that fail. nil and zero mean Envoy's default,
// but for the Consecutive ones, where 0 switches the check off.
type OutlierDetection struct {
	SplitExternalLocalOriginErrors bool
	ConsecutiveLocalOriginFailures *uint32
	ConsecutiveGatewayErrors       *uint32
	Consecutive5xx                 *uint32
	Interval                       time.Duration
	BaseEjectionTime               time.Duration
	MaxEjectionPercent             uint32
	MinHealthPercent               uint32
	HTTPErrorCodes                 []uint32
}

// TLSMode is how a client secures its connections.
type TLSMode string

// The modes.
const (
	TLSDisable     TLSMode = "DISABLE"
	TLSSimple      TLSMode = "SIMPLE"
	TLSMutual      TLSMode = "MUTUAL"
	TLSIstioMutual TLSMode = "ISTIO_MUTUAL"
)

// ClientTLS are the TLS settings towards an upstream. File names are the sidecar's.
type ClientTLS struct {
	Mode               TLSMode
	ClientCertificate  string
	PrivateKey         string
	CACertificates     string
	CRL                string
	CredentialName     string
	SubjectAltNames    []string
	SNI                string
	InsecureSkipVerify bool
}

// Tunnel sends connections through an HTTP CONNECT proxy.
type Tunnel struct {
	Post       bool // POST instead of CONNECT
	TargetHost string
	TargetPort uint32
}

// RetryBudget limits retries to a share of active requests.
type RetryBudget struct {
	Percent        float64 // 0 to 100
	MinConcurrency uint32
	Interval       time.Duration // 0: the default
}
