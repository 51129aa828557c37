// Package agent runs one sidecar: it writes Envoy's bootstrap, starts Envoy, watches
// it, starts it again after a crash, answers readiness probes and metric scrapes, and
// drains Envoy before it ends.
package agent

import (
	"io"
	"log/slog"
	"os"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
)

// Defaults of what a Config leaves out. The ports are Istio's.
const (
	DefaultXDSAddress     = "127.0.0.1:15010"
	DefaultConcurrency    = 2 // where no CPU limit is known
	DefaultDrainTime      = 5 * time.Second
	DefaultLeaveTimeout   = 10 * time.Second
	DefaultAdminPort      = 15000
	DefaultStatusPort     = 15020
	DefaultHealthPort     = 15021
	DefaultPrometheusPort = 15090

	// Istio's default drainDuration: how long connections of a listener that was modified
	// or removed by the control plane may live on.
	defaultListenerDrain = 45 * time.Second

	// IstioVersion is what a sidecar says of itself (ISTIO_VERSION), which EnvoyFilters
	// match on: the Istio whose API we speak.
	IstioVersion = "1.31.1"
)

// Istio's annotations for what has a setting of its own here; the setting wins.
const (
	interceptionAnnotation      = "sidecar.istio.io/interceptionMode"
	logLevelAnnotation          = "sidecar.istio.io/logLevel"
	componentLogLevelAnnotation = "sidecar.istio.io/componentLogLevel"
)

// Workload is whom the sidecar serves. ReadPod makes one from a Kubernetes Pod.
type Workload struct {
	Name           string
	Namespace      string   // "default" where empty
	IPs            []string // the first goes into the node id
	Labels         map[string]string
	Annotations    map[string]string
	ServiceAccount string // "default" where empty
	WorkloadName   string // of the Deployment or the like that owns the pod
	Owner          string // Istio's form: kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME
	NodeName       string
	Containers     []string
	Ports          []Port
	Locality       model.Locality
}

// Port is a port of one of the workload's containers.
type Port struct {
	Name          string `json:"name,omitempty"`
	ContainerPort uint32 `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// XDS is how the control plane is reached.
type XDS struct {
	Address   string // "host:port", or "unix:///path"
	Plaintext bool
	RootCert  string // file with the roots that the control plane's and the CA's certificates must chain to
	// ServerName is whom the control plane's certificate must be for: empty: the host of
	// Address, and for an IP address also Istio's name of the control plane.
	ServerName string
}

// Ports of the sidecar; 0 means the default.
type Ports struct {
	Admin      uint16 // Envoy's admin interface
	Status     uint16 // merged metrics, readiness
	Health     uint16 // readiness
	Prometheus uint16 // Envoy's own metrics
}

// Config says how to run a sidecar. Run does not change it. What is empty has the
// default above; what the annotation proxy.istio.io/config sets beats ProxyConfig and
// the defaults, and what is set here explicitly beats the annotation.
type Config struct {
	Type         model.ProxyType // a sidecar where empty; a router has no application behind it
	Workload     Workload
	ClusterID    string // "Kubernetes" where empty, as in Istio
	MeshID       string // "cluster.local" where empty, as in Istio
	Network      string
	Domain       string // the cluster's DNS domain, "cluster.local" where empty
	Interception model.Interception
	Intercept    Intercept      // the rules that bring connections to Envoy
	Metadata     map[string]any // goes into the node's metadata as it is, over everything else
	ProxyConfig  *meshconfig.ProxyConfig

	XDS         XDS
	CA          CA
	Concurrency *int           // worker threads of Envoy; 0: one a core; nil: see resolveConcurrency
	CPULimit    CPULimit       // what the sidecar may use
	AppMetrics  AppMetrics     // of the application, to be merged with Envoy's
	DrainTime   *time.Duration // how long connections may last after the first signal
	MinDrain    time.Duration  // drain at least that long, even without connections
	// LeaveTimeout bounds how long it is waited for that every proxy knows that the workload
	// leaves, before the drain; 0: nobody is told. Where it is over, or nobody could be
	// told, the drain takes at least DrainTime.
	LeaveTimeout *time.Duration
	// BootstrapTimeout bounds how long it is waited, before Envoy starts, for what EnvoyFilters change
	// of its bootstrap; 0: nobody is asked.
	BootstrapTimeout time.Duration
	// Reannounce is how often a drained workload repeats its deregistration; 0: every 5 s.
	Reannounce time.Duration

	// Where to listen. Empty: the workload's address if it is a loopback address, so that
	// many sidecars live on one machine; else admin on 127.0.0.1 and the rest on any.
	BindAddress  string
	AdminAddress string
	Ports        Ports

	EnvoyPath         string // empty: envoy.Find
	LogLevel          string // of Envoy; "warning" where empty
	ComponentLogLevel string // of Envoy; "misc:error" where empty
	WorkDir           string // for the bootstrap and the socket of SDS; empty: a temporary folder
	WasmCacheDir      string // for modules of plugins; empty: in WorkDir

	// DebugTokenFile has the bearer tokens that open the debug pages of the status port beyond
	// this host or pod; empty: nobody is let in from there.
	DebugTokenFile string

	Log *slog.Logger // where the agent's and Envoy's messages go; slog.Default() if nil
	// AccessLog is where access logs of /dev/stdout go, as they are; nil: they are messages, too.
	AccessLog io.Writer

	// Abort ends the sidecar at once when closed, without or during a drain. Signals are
	// passed to Envoy as they come; it is never closed. Both may be nil.
	Abort   <-chan struct{}
	Signals <-chan os.Signal
}
