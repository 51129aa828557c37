package agent

import (
	"io"
	"log/slog"
	"os"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/scrape"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Defaults of Config. The ports are Istio's.
const (
	DefaultXDSAddress     = "127.0.0.1:15010"
	DefaultConcurrency    = 2 // without a CPU limit
	DefaultDrainTime      = 5 * time.Second
	DefaultLeaveTimeout   = 10 * time.Second
	DefaultAdminPort      = 15000
	DefaultStatusPort     = 15020
	DefaultHealthPort     = 15021
	DefaultPrometheusPort = 15090
)

// Paths of an injected sidecar's files, as in Istio.
const (
	DefaultTokenFile = "/var/run/secrets/tokens/istio-token"
	DefaultRootCert  = "/var/run/secrets/istio/root-cert.pem"
	MountedCertsDir  = "/etc/certs" // with FILE_MOUNTED_CERTS=true
	// WorkloadAPISocket is the socket of the SPIFFE Workload API. WORKLOAD_IDENTITY_SOCKET_FILE overrides its last part.
	WorkloadAPISocket = "/var/run/secrets/workload-spiffe-uds/socket"
)

// NoCA as CA.Address: the workload gets no certificate.
const NoCA = "none"

// Config describes a sidecar. Run does not change it. An empty field has its default. The annotation proxy.istio.io/config
// overrides ProxyConfig and the defaults; a field that is set overrides the annotation.
type Config struct {
	Type         model.ProxyType // empty: a sidecar. A router has no application
	Workload     workload.Workload
	ClusterID    string // empty: "Kubernetes", as in Istio
	MeshID       string // empty: "cluster.local", as in Istio
	Network      string
	Domain       string // the cluster's DNS domain; empty: "cluster.local"
	Interception model.Interception
	Intercept    Intercept
	Metadata     map[string]any // overrides the node's metadata
	ProxyConfig  *meshconfig.ProxyConfig

	XDS         XDS
	CA          CA
	Concurrency *int           // worker threads of Envoy; 0: one for each core; nil: see resolveConcurrency
	CPULimit    CPULimit       // of the sidecar
	AppMetrics  []scrape.App   // the application's metrics
	DrainTime   *time.Duration // longest time that connections may last after the first signal
	MinDrain    time.Duration  // shortest drain, even without connections
	FullDrain   bool           // the drain takes at least DrainTime, for an application that may end after the sidecar
	// LeaveTimeout bounds the wait before the drain until every proxy has ACKed the removal of the workload's endpoints.
	// 0: do not deregister. If it expires, or the control plane cannot be reached, the drain takes at least DrainTime.
	LeaveTimeout *time.Duration
	// BootstrapTimeout bounds the wait for EnvoyFilters that patch the bootstrap, before Envoy starts. 0: do not ask.
	BootstrapTimeout time.Duration
	// StayReady keeps the sidecar ready during the drain, for a kubelet, which removes a Pod that ends from its Services by
	// itself and reports each probe that fails meanwhile.
	StayReady bool
	// Reannounce is how often a drained workload repeats its deregistration; 0: every 5 s.
	Reannounce time.Duration

	// Addresses to listen at. If they are empty and the workload's address is a loopback address, everything listens
	// there, so that many sidecars can run on one machine. Otherwise admin listens on 127.0.0.1, the rest on any address.
	BindAddress  string
	AdminAddress string
	Ports        Ports

	EnvoyPath         string // empty: envoy.Find
	LogLevel          string // of Envoy; empty: "warning"
	ComponentLogLevel string // of Envoy; empty: "misc:error"
	WorkDir           string // for the bootstrap and the socket; empty: a temporary folder
	WasmCacheDir      string // for Wasm modules; empty: in WorkDir
	// FetchAllowLoopback allows Wasm modules of servers on this machine.
	FetchAllowLoopback bool

	// DebugTokenFile holds bearer tokens that give access to the status port's debug pages from other hosts and Pods.
	// Empty: token authentication is disabled.
	DebugTokenFile string

	Log *slog.Logger // for messages of the agent and Envoy; nil: slog.Default()
	// AccessLog receives Envoy's standard output, where access logs of /dev/stdout go. nil: it is logged as messages.
	AccessLog io.Writer

	// Abort ends the sidecar at once when it is closed, also during a drain. The agent passes Signals to Envoy; the
	// channel is never closed. Both may be nil.
	Abort   <-chan struct{}
	Signals <-chan os.Signal
}

// XDS is the connection to the control plane.
type XDS struct {
	Address   string // "host:port" or "unix:///path"
	Plaintext bool
	RootCert  string // file with the roots that verify the control plane and the CA
	// ServerName is the name in the control plane's certificate. Empty: the host of Address; if that is an IP address,
	// Istio's name of the control plane is valid too.
	ServerName string
}

// CA is the source of the workload's certificate.
type CA struct {
	// Address of the CA, as "host:port" with TLS, or "unix:///path". Empty: the control plane's if it is reached with
	// TLS, else none. NoCA: none.
	Address     string
	TokenFile   string        // identifies the workload to the CA; empty: DefaultTokenFile
	TTL         time.Duration // of certificates; 0: identity.DefaultTTL
	GraceRatio  float64       // remaining part of a certificate's lifetime at which it is renewed; 0: identity.DefaultGraceRatio
	RSABits     int           // 0: ECDSA P-256 keys
	TrustDomain string        // of the requested identity; empty: "cluster.local"

	MountedCerts string // folder with cert-chain.pem, key.pem and root-cert.pem, which replace the CA
	WorkloadAPI  string // address of the SPIFFE Workload API, as "unix:///path", which replaces the CA
	OutputCerts  string // folder to write certificates to, for other programs; empty: none
}

// Ports of the sidecar; 0 is the default.
type Ports struct {
	Admin      uint16 // Envoy's admin interface
	Status     uint16 // merged metrics, readiness, drain, debug pages
	Health     uint16 // readiness
	Prometheus uint16 // Envoy's own metrics
}

// Intercept is how the workload's connections reach Envoy: by rules of the agent's network namespace.
type Intercept struct {
	// Rules: the agent sets the rules before Envoy starts, and removes them after Envoy's end. Otherwise an init
	// container has set them, or there are none.
	Rules    bool
	Settings intercept.Settings // annotations of the Pod and the mode override them
	Backend  intercept.Backend
	// User runs Envoy, and distinguishes its connections from the application's. nil: the agent's user.
	User *envoy.User
	// ResolvConf lists the DNS servers whose questions are captured, and which answer for names outside of the mesh;
	// empty: /etc/resolv.conf.
	ResolvConf string
}
