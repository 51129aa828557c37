package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
)

// Istio's annotations that set a field of Config which is empty.
const (
	logLevelAnnotation          = "sidecar.istio.io/logLevel"
	componentLogLevelAnnotation = "sidecar.istio.io/componentLogLevel"
)

// settings are a Config with all defaults and annotations applied.
type settings struct {
	Config
	node        bootstrap.Node
	proxyConfig *meshconfig.ProxyConfig
	podTracing  *meshconfig.Tracing // of the Pod's annotation; nil: none
	concurrency int
	because     string // the source of concurrency
	buckets     []*metricsv3.HistogramBucketSettings

	maxConnections int64 // of clients; 0: no limit

	drainTime     time.Duration // of the sidecar
	listenerDrain time.Duration // of a listener (Envoy's --drain-time-s)
	leaveTimeout  time.Duration
	instance      string // name of this run; empty if only the bootstrap is printed

	bind      string
	adminHost string
	adminAddr string // host:port
	ports     Ports
	xdsHost   string // empty for a Unix socket
	xdsPort   uint16

	caAddress  string                   // empty: certificates are files, or there are none
	identified bool                     // the workload has, or will have, a certificate
	workDir    string                   // with the agent's socket; Run creates it
	modules    bool                     // the agent fetches Wasm modules
	files      bool                     // the agent reads files with certificates for Envoy
	patches    []*bootstrapv3.Bootstrap // of EnvoyFilters

	log     *slog.Logger
	logTail *inspect.Tail // the end of log
}

// ConfigError is a mistake in a Config. The agent has not started anything.
type ConfigError struct{ error }

// Unwrap returns the cause.
func (e ConfigError) Unwrap() error { return e.error }

// resolve applies defaults and annotations, and checks the result. Its errors name the flag or annotation to correct.
func (c Config) resolve() (*settings, error) {
	s := &settings{Config: c, log: c.Log}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.keepLog()
	for _, step := range []func() error{s.resolveWorkload, s.resolveXDS, s.resolveCA, s.resolveProxyConfig, s.resolveAddresses} {
		if err := step(); err != nil {
			return nil, ConfigError{err}
		}
	}
	s.leaveTimeout = DefaultLeaveTimeout
	if c.LeaveTimeout != nil {
		s.leaveTimeout = *c.LeaveTimeout
	}
	s.node = s.makeNode()
	s.limitConnections()
	s.warnUnread()
	return s, nil
}

// keepLog keeps the end of the log for the debug pages.
func (s *settings) keepLog() {
	s.logTail = &inspect.Tail{}
	kept := slog.NewTextHandler(s.logTail, &slog.HandlerOptions{Level: slog.LevelInfo})
	s.log = slog.New(slog.NewMultiHandler(s.log.Handler(), kept))
}

var envoyLogLevels = []string{"trace", "debug", "info", "warning", "warn", "error", "critical", "off"}

func (s *settings) resolveWorkload() error {
	w := &s.Workload
	if err := s.resolveType(); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("the workload has no name: set --name (or POD_NAME), or describe it with --pod FILE")
	}
	if len(w.IPs) == 0 {
		return fmt.Errorf("workload %s has no IP address: set --ip (or INSTANCE_IP), "+
			"or status.podIP in the file of --pod; on one machine use any address of 127.0.0.0/8", w.Name)
	}
	for _, ip := range w.IPs {
		if _, err := netip.ParseAddr(ip); err != nil {
			return fmt.Errorf("workload %s: invalid IP address %q: correct --ip (or INSTANCE_IP)", w.Name, ip)
		}
	}
	w.Namespace = cmp.Or(w.Namespace, "default")
	w.ServiceAccount = cmp.Or(w.ServiceAccount, "default")
	s.ClusterID = cmp.Or(s.ClusterID, "Kubernetes")
	s.Domain = cmp.Or(s.Domain, "cluster.local")
	s.MeshID = cmp.Or(s.MeshID, "cluster.local")
	if !s.isRouter() {
		s.Interception = model.Interception(cmp.Or(string(s.Interception), w.Annotations[model.AnnotationInterception], string(model.InterceptRedirect)))
	}
	s.LogLevel = cmp.Or(s.LogLevel, w.Annotations[logLevelAnnotation], "warning")
	s.ComponentLogLevel = cmp.Or(s.ComponentLogLevel, w.Annotations[componentLogLevelAnnotation], "misc:error")
	if !slices.Contains(envoyLogLevels, s.LogLevel) {
		return fmt.Errorf("invalid log level %q of Envoy: use one of %s: correct --proxy-log-level or annotation %s", s.LogLevel, strings.Join(envoyLogLevels, ", "), logLevelAnnotation)
	}
	switch s.Interception {
	case model.InterceptNone, model.InterceptRedirect, model.InterceptTProxy:
		return nil
	}
	return fmt.Errorf("invalid interception mode %q: use one of REDIRECT, TPROXY, NONE: correct --interception-mode or annotation %s", s.Interception, model.AnnotationInterception)
}

// resolveType refuses interception for a router: it only receives connections to its own address.
func (s *settings) resolveType() error {
	s.Type = cmp.Or(s.Type, model.ProxySidecar)
	switch s.Type {
	case model.ProxySidecar:
		return nil
	case model.ProxyRouter:
	default:
		return fmt.Errorf("invalid type %q: use sidecar or router: correct --type", s.Type)
	}
	if s.Intercept.Rules || s.Interception != "" && s.Interception != model.InterceptNone {
		return errors.New("a router has no application whose connections could be intercepted: leave out --intercept and --interception-mode")
	}
	s.Interception = model.InterceptNone
	return nil
}

func (s *settings) isRouter() bool { return s.Type == model.ProxyRouter }

// noun is how messages call the proxy.
func (s *settings) noun() string {
	if s.isRouter() {
		return "gateway"
	}
	return "sidecar"
}
