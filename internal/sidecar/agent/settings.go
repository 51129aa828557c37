package agent

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
)

// settings are a Config with every default and every source of configuration applied.
type settings struct {
	Config
	node        node
	proxyConfig *meshconfig.ProxyConfig
	ownTracing  *meshconfig.Tracing // of the Pod's annotation; nil: none
	concurrency int
	because     string // why so many worker threads
	buckets     []*metricsv3.HistogramBucketSettings
	drainTime   time.Duration // of the sidecar as a whole
	leaveBound  time.Duration // LeaveTimeout
	instance    string        // of this run; empty for what is only printed
	listenDrain time.Duration // of a listener (Envoy's --drain-time-s)
	bind        string
	adminHost   string
	adminAddr   string // host:port
	ports       Ports
	xdsHost     string // empty for a Unix socket
	xdsPort     uint16
	caAddress   string                   // empty: certificates are files, or there are none
	identified  bool                     // the workload has, or will have, a certificate
	workDir     string                   // where the socket of SDS is; made by Run
	modules     bool                     // the agent fetches modules of plugins
	files       bool                     // the agent reads files with certificates for Envoy
	amendments  []*bootstrapv3.Bootstrap // what EnvoyFilters change of the bootstrap
	log         *slog.Logger
	logged      *inspect.Tail // the end of log
}

// ConfigError is what is wrong with a Config; nothing was started.
type ConfigError struct{ error }

// Unwrap is the cause.
func (e ConfigError) Unwrap() error { return e.error }

// resolve applies defaults and checks. Its errors name the setting and say what to do.
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
	s.leaveBound = DefaultLeaveTimeout
	if c.LeaveTimeout != nil {
		s.leaveBound = *c.LeaveTimeout
	}
	s.node = s.makeNode()
	s.tellUncounted()
	s.tellWorkers()
	s.tellUnread()
	return s, nil
}

var envoyLogLevels = []string{"trace", "debug", "info", "warning", "warn", "error", "critical", "off"}

func (s *settings) resolveWorkload() error {
	w := &s.Workload
	if err := s.resolveType(); err != nil {
		return err
	}
	if w.Name == "" {
		return fmt.Errorf("the workload has no name: set --name (or POD_NAME), or describe it with --pod FILE")
	}
	if len(w.IPs) == 0 {
		return fmt.Errorf("workload %s has no IP address: set --ip (or INSTANCE_IP), "+
			"or status.podIP in the file given with --pod; on one machine any of 127.0.0.0/8 will do", w.Name)
	}
	for _, ip := range w.IPs {
		if _, err := netip.ParseAddr(ip); err != nil {
			return fmt.Errorf("workload %s: %q is not an IP address: correct --ip (or INSTANCE_IP)", w.Name, ip)
		}
	}
	w.Namespace = orDefault(w.Namespace, "default")
	w.ServiceAccount = orDefault(w.ServiceAccount, "default")
	s.ClusterID = orDefault(s.ClusterID, "Kubernetes")
	s.Domain = orDefault(s.Domain, "cluster.local")
	s.MeshID = orDefault(s.MeshID, "cluster.local")
	if !s.isRouter() {
		mode := orDefault(string(s.Interception), w.Annotations[interceptionAnnotation])
		s.Interception = model.Interception(orDefault(mode, string(model.InterceptRedirect)))
	}
	s.LogLevel = orDefault(orDefault(s.LogLevel, w.Annotations[logLevelAnnotation]), "warning")
	s.ComponentLogLevel = orDefault(orDefault(s.ComponentLogLevel, w.Annotations[componentLogLevelAnnotation]), "misc:error")
	if !slices.Contains(envoyLogLevels, s.LogLevel) {
		return fmt.Errorf("log level %q of Envoy is none of %s: correct --proxy-log-level or annotation %s", s.LogLevel, strings.Join(envoyLogLevels, ", "), logLevelAnnotation)
	}
	switch s.Interception {
	case model.InterceptNone, model.InterceptRedirect, model.InterceptTProxy:
		return nil
	}
	return fmt.Errorf("interception mode %q is none of REDIRECT, TPROXY, NONE: correct --interception-mode or annotation %s", s.Interception, interceptionAnnotation)
}

// resolveType: nothing comes to a router but by its own address.
func (s *settings) resolveType() error {
	s.Type = orDefault(s.Type, model.ProxySidecar)
	switch s.Type {
	case model.ProxySidecar:
		return nil
	case model.ProxyRouter:
	default:
		return fmt.Errorf("%q is neither sidecar nor router: correct --type", s.Type)
	}
	if s.Intercept.Rules || s.Interception != "" && s.Interception != model.InterceptNone {
		return fmt.Errorf("a router has no application whose connections could be intercepted: leave out --intercept and --interception-mode")
	}
	s.Interception = model.InterceptNone
	return nil
}

func (s *settings) isRouter() bool { return s.Type == model.ProxyRouter }

func (s *settings) resolveXDS() error {
	s.XDS.Address = orDefault(s.XDS.Address, DefaultXDSAddress)
	if !s.XDS.Plaintext {
		if err := s.resolveRoots("the control plane at " + s.XDS.Address); err != nil {
			return err
		}
	}
	if socketPath(s.XDS.Address) != "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.XDS.Address)
	if err == nil && host == "" {
		err = fmt.Errorf("no host")
	}
	if err != nil {
		return fmt.Errorf("control plane address %q: %w: --xds-address wants host:port or unix:///path", s.XDS.Address, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("control plane address %q: invalid port %q: use a number from 1 to 65535: correct --xds-address", s.XDS.Address, port)
	}
	s.xdsHost, s.xdsPort = host, uint16(n)
	return nil
}

// resolveRoots finds the file that a server's certificate is checked by.
func (s *settings) resolveRoots(server string) error {
	if s.XDS.RootCert == "" {
		if _, err := os.Stat(DefaultRootCert); err != nil {
			return fmt.Errorf("TLS to %s needs roots to check it by: set --xds-root-cert FILE, or --xds-plaintext", server)
		}
		s.XDS.RootCert = DefaultRootCert
	}
	if _, err := os.Stat(s.XDS.RootCert); err != nil {
		return fmt.Errorf("roots of the control plane's certificate: %w: correct --xds-root-cert", err)
	}
	return nil
}

func (s *settings) resolveAddresses() error {
	if err := s.resolveHosts(); err != nil {
		return err
	}
	s.ports = Ports{
		Admin:      orDefault(s.Ports.Admin, DefaultAdminPort),
		Status:     orDefault(s.Ports.Status, DefaultStatusPort),
		Health:     orDefault(s.Ports.Health, DefaultHealthPort),
		Prometheus: orDefault(s.Ports.Prometheus, DefaultPrometheusPort),
	}
	s.adminAddr = net.JoinHostPort(s.adminHost, strconv.Itoa(int(s.ports.Admin)))
	return s.checkPorts()
}

// resolveHosts: see Config.BindAddress.
func (s *settings) resolveHosts() error {
	ip := netip.MustParseAddr(s.Workload.IPs[0])
	s.bind, s.adminHost = "0.0.0.0", "127.0.0.1"
	if ip.Is6() {
		s.bind, s.adminHost = "::", "::1"
	}
	if ip.IsLoopback() {
		s.bind = ip.String()
	}
	s.bind = orDefault(s.BindAddress, s.bind)
	bind, err := netip.ParseAddr(s.bind)
	if err != nil {
		return fmt.Errorf("%q is not an IP address: correct --bind-address", s.bind)
	}
	if bind.IsLoopback() {
		s.adminHost = s.bind
	}
	s.adminHost = orDefault(s.AdminAddress, s.adminHost)
	if _, err := netip.ParseAddr(s.adminHost); err != nil {
		return fmt.Errorf("%q is not an IP address: correct --admin-address", s.adminHost)
	}
	return nil
}

// statusHost is where Envoy finds the status port.
func (s *settings) statusHost() string {
	switch s.bind {
	case "0.0.0.0", "::":
		return loopback(s.bind)
	}
	return s.bind
}

func (s *settings) checkPorts() error {
	users := map[uint16]string{}
	for _, p := range []struct {
		port uint16
		flag string
	}{
		{s.ports.Admin, "--admin-port"}, {s.ports.Status, "--status-port"},
		{s.ports.Health, "--health-port"}, {s.ports.Prometheus, "--prometheus-port"},
	} {
		if other, taken := users[p.port]; taken {
			return fmt.Errorf("%s and %s are both %d: change one", other, p.flag, p.port)
		}
		users[p.port] = p.flag
	}
	return nil
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
