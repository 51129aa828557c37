package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/security/workloadapi"
)

// socketPath returns the path of an address "unix:///path", else "".
func socketPath(address string) string {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return ""
	}
	return path
}

func (s *settings) resolveXDS() error {
	s.XDS.Address = cmp.Or(s.XDS.Address, DefaultXDSAddress)
	if !s.XDS.Plaintext && s.CA.WorkloadAPI == "" {
		if err := s.resolveRoots("the control plane at " + s.XDS.Address); err != nil {
			return err
		}
	}
	if socketPath(s.XDS.Address) != "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.XDS.Address)
	if err == nil && host == "" {
		err = errors.New("no host")
	}
	if err != nil {
		return fmt.Errorf("control plane address %q: %w: set --xds-address to host:port or unix:///path", s.XDS.Address, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("control plane address %q: invalid port %q: use a number from 1 to 65535: correct --xds-address", s.XDS.Address, port)
	}
	s.xdsHost, s.xdsPort = host, uint16(n)
	return nil
}

// resolveRoots finds the file with the roots that verify a server.
func (s *settings) resolveRoots(server string) error {
	if s.XDS.RootCert == "" {
		if _, err := os.Stat(DefaultRootCert); err != nil {
			return fmt.Errorf("TLS to %s: no roots to verify it: set --xds-root-cert FILE, or --xds-plaintext", server)
		}
		s.XDS.RootCert = DefaultRootCert
	}
	if _, err := os.Stat(s.XDS.RootCert); err != nil {
		return fmt.Errorf("roots of the control plane's certificate: %w: correct --xds-root-cert", err)
	}
	return nil
}

func (s *settings) resolveCA() error {
	s.CA.TokenFile = cmp.Or(s.CA.TokenFile, DefaultTokenFile)
	s.CA.TrustDomain = cmp.Or(s.CA.TrustDomain, "cluster.local")
	if s.CA.WorkloadAPI != "" {
		s.identified = true
		return workloadapi.Check(s.CA.WorkloadAPI)
	}
	if s.CA.MountedCerts != "" {
		s.identified = true
		return nil
	}
	address := s.CA.Address
	if address == "" && !s.XDS.Plaintext {
		address = s.XDS.Address
	}
	if address == "" || address == NoCA {
		return nil
	}
	s.caAddress, s.identified = address, true
	if socketPath(s.caAddress) != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(s.caAddress)
	if err == nil && host == "" {
		err = errors.New("no host")
	}
	if err != nil {
		return fmt.Errorf("CA address %q: %w: set --ca-address to host:port, unix:///path or %s", s.caAddress, err, NoCA)
	}
	return s.resolveRoots("the CA at " + s.caAddress)
}

// caNames returns the names of which the CA's certificate must contain one. A CA beside the control plane has the name of
// its host.
func (s *settings) caNames() []string {
	host, _, err := net.SplitHostPort(s.caAddress)
	if err != nil || socketPath(s.caAddress) != "" {
		host = ""
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" && s.caAddress != s.XDS.Address {
		return []string{host}
	}
	return s.serverNames(host)
}

func (s *settings) resolveAddresses() error {
	if err := s.resolveHosts(); err != nil {
		return err
	}
	s.ports = Ports{
		Admin:      cmp.Or(s.Ports.Admin, DefaultAdminPort),
		Status:     cmp.Or(s.Ports.Status, DefaultStatusPort),
		Health:     cmp.Or(s.Ports.Health, DefaultHealthPort),
		Prometheus: cmp.Or(s.Ports.Prometheus, DefaultPrometheusPort),
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
	s.bind = cmp.Or(s.BindAddress, s.bind)
	bind, err := netip.ParseAddr(s.bind)
	if err != nil {
		return fmt.Errorf("invalid IP address %q: correct --bind-address", s.bind)
	}
	if bind.IsLoopback() {
		s.adminHost = s.bind
	}
	s.adminHost = cmp.Or(s.AdminAddress, s.adminHost)
	if _, err := netip.ParseAddr(s.adminHost); err != nil {
		return fmt.Errorf("invalid IP address %q: correct --admin-address", s.adminHost)
	}
	return nil
}

// statusHost is the address at which Envoy reaches the status port.
func (s *settings) statusHost() string {
	switch s.bind {
	case "0.0.0.0":
		return "127.0.0.1"
	case "::":
		return "::1"
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
