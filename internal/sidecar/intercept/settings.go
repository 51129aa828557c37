// Package intercept redirects a workload's connections to its sidecar. It sets rules of nftables, or of iptables if the
// kernel has no nftables, in the network namespace that it runs in. It intercepts the same connections as Istio.
//
//	Settings (users' texts) -> Config (checked) -> Ruleset (pure) -> kernel, or text
package intercept

import (
	"net/netip"
	"strconv"
	"strings"
)

// Modes of inbound interception. Outbound connections are always redirected.
const (
	ModeRedirect = "REDIRECT"
	ModeTProxy   = "TPROXY"
	ModeNone     = "NONE" // no interception
)

// all, instead of ports or ranges, selects all of them.
const all = "*"

// Settings are the users' settings in Istio's forms: lists separated by commas, or "*".
type Settings struct {
	Mode                    string
	IncludeInboundPorts     string
	ExcludeInboundPorts     string
	IncludeOutboundPorts    string // in addition to connections to the included ranges
	ExcludeOutboundPorts    string
	IncludeOutboundIPRanges string
	ExcludeOutboundIPRanges string
	ExcludeInterfaces       string
	KubevirtInterfaces      string // of virtual machines, whose connections are outbound
	ProxyUID                string
	ProxyGID                string
	DropInvalid             string // "true": drop packets that connection tracking finds invalid
	CaptureDNS              string // "true": redirect DNS questions to the sidecar's DNS proxy
	OutboundPort            string // Envoy's port for outbound connections: the mesh's proxyListenPort
	InboundPort             string // Envoy's port for inbound connections: the mesh's proxyInboundListenPort
}

// Default returns the default settings.
func Default() Settings {
	return Settings{
		Mode: ModeRedirect, IncludeInboundPorts: all, IncludeOutboundIPRanges: all,
		ProxyUID: strconv.Itoa(ProxyID), ProxyGID: strconv.Itoa(ProxyID),
		OutboundPort: strconv.Itoa(DefaultOutboundPort), InboundPort: strconv.Itoa(DefaultInboundPort),
	}
}

// Setting is one of Settings with its names.
type Setting struct {
	Flag        string   // of moonsail agent intercept
	Annotations []string // of the Pod; the first that is set applies; none: not available
	Env         string   // Istio's environment variable
	Usage       string
	in          func(*Settings) *string
}

// Value returns the field of a setting.
func (s *Setting) Value(of *Settings) *string { return s.in(of) }

// List returns the table of all settings.
func List() []Setting {
	const traffic = "traffic.sidecar.istio.io/"
	return []Setting{
		{"interception-mode", []string{"sidecar.istio.io/interceptionMode"}, "ISTIO_INBOUND_INTERCEPTION_MODE",
			"how inbound connections reach Envoy: REDIRECT, TPROXY, or NONE", func(s *Settings) *string { return &s.Mode }},
		{"include-inbound-ports", []string{traffic + "includeInboundPorts"}, "ISTIO_INBOUND_PORTS",
			"inbound `ports` to intercept; * for all, empty for none", func(s *Settings) *string { return &s.IncludeInboundPorts }},
		{"exclude-inbound-ports", []string{traffic + "excludeInboundPorts"}, "ISTIO_LOCAL_EXCLUDE_PORTS",
			"inbound `ports` to exclude, in addition to the sidecar's own", func(s *Settings) *string { return &s.ExcludeInboundPorts }},
		{"include-outbound-ip-ranges", []string{traffic + "includeOutboundIPRanges"}, "ISTIO_SERVICE_CIDR",
			"destinations (`CIDRs`) to intercept; * for all", func(s *Settings) *string { return &s.IncludeOutboundIPRanges }},
		{"exclude-outbound-ip-ranges", []string{traffic + "excludeOutboundIPRanges"}, "ISTIO_SERVICE_EXCLUDE_CIDR",
			"destinations (`CIDRs`) to exclude", func(s *Settings) *string { return &s.ExcludeOutboundIPRanges }},
		{"include-outbound-ports", []string{traffic + "includeOutboundPorts"}, "ISTIO_OUTBOUND_PORTS",
			"outbound `ports` to intercept for any destination", func(s *Settings) *string { return &s.IncludeOutboundPorts }},
		{"exclude-outbound-ports", []string{traffic + "excludeOutboundPorts"}, "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE",
			"outbound `ports` to exclude", func(s *Settings) *string { return &s.ExcludeOutboundPorts }},
		{"exclude-interfaces", []string{traffic + "excludeInterfaces"}, "ISTIO_EXCLUDE_INTERFACES",
			"network `interfaces` to exclude", func(s *Settings) *string { return &s.ExcludeInterfaces }},
		{"kubevirt-interfaces", []string{"istio.io/reroute-virtual-interfaces", traffic + "kubevirtInterfaces"}, "",
			"network `interfaces` of virtual machines, whose connections are outbound", func(s *Settings) *string { return &s.KubevirtInterfaces }},
		{"proxy-uid", nil, "ENVOY_UID", "user `ids` that identify the sidecar's connections", func(s *Settings) *string { return &s.ProxyUID }},
		{"proxy-gid", nil, "ENVOY_GID", "exclude processes with these group `ids` too", func(s *Settings) *string { return &s.ProxyGID }},
		{"drop-invalid", nil, "INVALID_DROP", "drop packets that belong to no connection (true or false)", func(s *Settings) *string { return &s.DropInvalid }},
		{"capture-dns", nil, "ISTIO_META_DNS_CAPTURE", "redirect DNS questions to the sidecar's DNS proxy (true or false)", func(s *Settings) *string { return &s.CaptureDNS }},
		// Without Istio's variables, ENVOY_PORT and INBOUND_CAPTURE_PORT: for a Service named envoy, Kubernetes sets
		// the first one to an address in each container of its namespace.
		{"envoy-port", nil, "", "Envoy's `port` for outbound connections: proxyListenPort of the mesh", func(s *Settings) *string { return &s.OutboundPort }},
		{"inbound-capture-port", nil, "", "Envoy's `port` for inbound connections: proxyInboundListenPort of the mesh", func(s *Settings) *string { return &s.InboundPort }},
	}
}

// Annotated returns the settings with a Pod's annotations applied.
func (s Settings) Annotated(annotations map[string]string) Settings {
	for _, row := range List() {
		for _, a := range row.Annotations {
			if v, ok := annotations[a]; ok {
				*row.in(&s) = v
				break
			}
		}
	}
	return s
}

// Ports of a sidecar, as in Istio. The first two are defaults.
const (
	DefaultOutboundPort = 15001
	DefaultInboundPort  = 15006
	DefaultTunnelPort   = 15008
	DefaultDNSPort      = 15053
	ProxyID             = 1337 // user and group of Envoy
)

// ownPorts are the sidecar's ports that other hosts call directly: metrics, readiness, Envoy's metrics.
var ownPorts = []uint16{15020, 15021, 15090}

// Ports is a list of ports, or all ports.
type Ports struct {
	All  bool
	List []uint16
}

// Ranges is a list of address ranges, or all addresses.
type Ranges struct {
	All  bool
	List []netip.Prefix
}

// Config is the decoded settings.
type Config struct {
	Mode                      string
	OutboundPort, InboundPort uint16
	DNSPort                   uint16
	UIDs, GIDs                []uint32
	InboundPorts              Ports
	NotInboundPorts           []uint16 // including the sidecar's own
	OutboundPorts             Ports
	NotOutboundPorts          []uint16
	Outbound                  Ranges
	NotOutbound               []netip.Prefix
	NotInterfaces             []string
	Kubevirt                  []string
	DropInvalid, CaptureDNS   bool
	Probe                     bool         // redirect the connection of Check, which proves to an unprivileged process that the rules are in force
	IPv6                      bool         // the namespace has IPv6 addresses, and Envoy listens there
	DNSServers                []netip.Addr // servers whose questions are redirected; none: all servers
}

// Parse decodes and checks the settings. Errors contain the flag and the annotation.
func (s Settings) Parse() (*Config, error) {
	c := &Config{Mode: strings.ToUpper(s.Mode), DNSPort: DefaultDNSPort}
	p := &parser{settings: &s}
	c.OutboundPort, c.InboundPort = p.port("envoy-port"), p.port("inbound-capture-port")
	if p.err == nil && c.OutboundPort == c.InboundPort {
		p.fail("inbound-capture-port", "%d is also --envoy-port: use two ports", c.InboundPort)
	}
	if c.Mode != ModeRedirect && c.Mode != ModeTProxy && c.Mode != ModeNone {
		p.fail("interception-mode", "invalid value %q: use REDIRECT, TPROXY or NONE", s.Mode)
	}
	c.InboundPorts = p.portsOrAll("include-inbound-ports")
	c.NotInboundPorts = union(ownPorts, p.ports("exclude-inbound-ports"))
	c.OutboundPorts = p.portsOrAll("include-outbound-ports")
	c.NotOutboundPorts = union(p.ports("exclude-outbound-ports"))
	c.Outbound = p.rangesOrAll("include-outbound-ip-ranges")
	c.NotOutbound = p.ranges("exclude-outbound-ip-ranges")
	c.NotInterfaces = p.interfaces("exclude-interfaces")
	c.Kubevirt = p.interfaces("kubevirt-interfaces")
	c.UIDs, c.GIDs = p.ids("proxy-uid"), p.ids("proxy-gid")
	c.DropInvalid, c.CaptureDNS = p.boolean("drop-invalid"), p.boolean("capture-dns")
	if p.err == nil && len(c.UIDs)+len(c.GIDs) == 0 {
		p.fail("proxy-uid", "without --proxy-uid and --proxy-gid Envoy's own connections would be redirected to it again: set one")
	}
	return c, p.err
}
