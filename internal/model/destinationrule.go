package model

import "time"

// DestinationRule is the policy of calls to a host.
type DestinationRule struct {
	Meta
	Host             Host
	Policy           TrafficPolicy
	Ports            map[uint32]TrafficPolicy // by service port; does not inherit from Policy
	Subsets          []Subset
	WorkloadSelector map[string]string // labels of the clients; empty: all clients
	Visibility       Visibility
}

// Subset is a named part of a service's endpoints.
type Subset struct {
	Name   string
	Labels map[string]string
	Policy TrafficPolicy
	Ports  map[uint32]TrafficPolicy
}

// TrafficPolicy is a set of policies; nil parts are unset.
type TrafficPolicy struct {
	LoadBalancer     *LoadBalancer
	ConnectionPool   *ConnectionPool
	OutlierDetection *OutlierDetection
	TLS              *ClientTLS
	Tunnel           *Tunnel
	ProxyProtocol    uint32 // 0: none, else the version to send
	RetryBudget      *RetryBudget
}

// Merge returns p with each part that over sets replaced.
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

// LBAlgorithm is a load balancing algorithm.
type LBAlgorithm string

// The algorithms. Empty: the default, LEAST_REQUEST.
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

// HashPolicy is the part of a request that is hashed. Exactly one field is set.
type HashPolicy struct {
	Header     string
	QueryParam string
	SourceIP   bool
	Cookie     *HashCookie
}

// HashCookie hashes a cookie. With TTL set, Envoy creates a missing one.
type HashCookie struct {
	Name, Path string
	TTL        *time.Duration
	Attributes []HeaderValue
}

// LocalityLB prefers near endpoints. A nil Enabled means: if there is outlier detection.
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
	MinimumPercent *float64 // nil: the default
	Aggression     float64  // 0: the default
}

// ConnectionPool limits; zero values mean Envoy's or the mesh's default. An idle timeout of 0 means none.
type ConnectionPool struct {
	MaxConnections        uint32
	ConnectTimeout        time.Duration
	MaxConnectionDuration time.Duration
	TCPIdleTimeout        *time.Duration
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

// LimitsConnections reports whether there are limits that assume HTTP/1.1's one request at a time on a connection.
func (p *ConnectionPool) LimitsConnections() bool {
	return p.MaxConnections > 0 || p.MaxPendingRequests > 0 || p.MaxRequestsPerConnection > 0
}

// H2Upgrade determines whether HTTP/1.1 is sent as HTTP/2 upstream.
type H2Upgrade uint8

// The upgrade policies.
const (
	H2UpgradeDefault H2Upgrade = iota
	H2UpgradeNever
	H2UpgradeAlways
)

// TCPKeepalive are socket options; zero: the system's default.
type TCPKeepalive struct {
	Probes         uint32
	Time, Interval time.Duration
}

// HTTP2Keepalive are pings on idle connections.
type HTTP2Keepalive struct{ Interval, Timeout time.Duration }

// OutlierDetection ejects failing endpoints. nil and zero mean Envoy's default; for the Consecutive fields 0 disables
// the check.
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

// ClientTLS are the TLS settings for an upstream. Files are the sidecar's.
type ClientTLS struct {
	Mode               TLSMode
	ClientCertificate  string
	PrivateKey         string
	CACertificates     string
	CRL                string
	CredentialName     string
	CertificateName    string // a Secret with the client's certificate, if CredentialName has only CAs
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
