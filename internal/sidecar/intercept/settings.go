// Package intercept makes a workload's connections go through its sidecar: it sets rules of
// nftables, or of iptables where the kernel has no nftables, in the network namespace that
// it runs in. What is intercepted, and what is not, is as with Istio.
//
//	Settings (what users say) -> Config (checked) -> Ruleset (pure) -> kernel, or text
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
	ModeNone     = "NONE" // nothing is intercepted
)

// all, in place of ports or ranges, is all of them.
const all = "*"

// Settings are what users say, in Istio's forms: lists with commas between, or "*".
type Settings struct {
	Mode                    string
	IncludeInboundPorts     string
	ExcludeInboundPorts     string
	IncludeOutboundPorts    string // beside what goes to the included ranges
	ExcludeOutboundPorts    string
	IncludeOutboundIPRanges string
	ExcludeOutboundIPRanges string
	ExcludeInterfaces       string
	KubevirtInterfaces      string // what comes in there is outbound, of a virtual machine
	ProxyUID                string
	ProxyGID                string
	DropInvalid             string // "true": packets that conntrack finds invalid are dropped
	CaptureDNS              string // "true": to the sidecar's DNS proxy
	OutboundPort            string // where outbound connections are redirected to: the mesh's proxyListenPort
	InboundPort             string // likewise inbound ones: the mesh's proxyInboundListenPort
}

// Default is what holds where users say nothing.
func Default() Settings {
	return Settings{
		Mode: ModeRedirect, IncludeInboundPorts: all, IncludeOutboundIPRanges: all,
		ProxyUID: strconv.Itoa(ProxyID), ProxyGID: strconv.Itoa(ProxyID),
		OutboundPort: strconv.Itoa(DefaultOutboundPort), InboundPort: strconv.Itoa(DefaultInboundPort),
	}
}

// Setting is one of Settings, with the names by which users know it.
type Setting struct {
	Flag        string   // of moonsail agent intercept
	Annotations []string // of the Pod, the first that is there; none: it cannot be said there
	Env         string   // Istio's environment variable
	Usage       string
	in          func(*Settings) *string
}

// Value is where a setting is.
func (s *Setting) Value(of *Settings) *string { return s.in(of) }

// List is the table of all settings.
func List() []Setting {
	const traffic = "traffic.sidecar.istio.io/"
	return []Setting{
		{"interception-mode", []string{"sidecar.istio.io/interceptionMode"}, "ISTIO_INBOUND_INTERCEPTION_MODE",
			"how inbound connections get to Envoy: REDIRECT, TPROXY, or NONE", func(s *Settings) *string { return &s.Mode }},
		{"include-inbound-ports", []string{traffic + "includeInboundPorts"}, "ISTIO_INBOUND_PORTS",
			"inbound `ports` that are intercepted; * is all, empty is none", func(s *Settings) *string { return &s.IncludeInboundPorts }},
		{"exclude-inbound-ports", []string{traffic + "excludeInboundPorts"}, "ISTIO_LOCAL_EXCLUDE_PORTS",
			"inbound `ports` that are not, beside the sidecar's own", func(s *Settings) *string { return &s.ExcludeInboundPorts }},
		{"include-outbound-ip-ranges", []string{traffic + "includeOutboundIPRanges"}, "ISTIO_SERVICE_CIDR",
			"destinations (`CIDRs`) that are intercepted; * is all", func(s *Settings) *string { return &s.IncludeOutboundIPRanges }},
		{"exclude-outbound-ip-ranges", []string{traffic + "excludeOutboundIPRanges"}, "ISTIO_SERVICE_EXCLUDE_CIDR",
			"destinations (`CIDRs`) that are not", func(s *Settings) *string { return &s.ExcludeOutboundIPRanges }},
		{"include-outbound-ports", []string{traffic + "includeOutboundPorts"}, "ISTIO_OUTBOUND_PORTS",
			"outbound `ports` that are intercepted wherever they lead", func(s *Settings) *string { return &s.IncludeOutboundPorts }},
		{"exclude-outbound-ports", []string{traffic + "excludeOutboundPorts"}, "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE",
			"outbound `ports` that are not", func(s *Settings) *string { return &s.ExcludeOutboundPorts }},
		{"exclude-interfaces", []string{traffic + "excludeInterfaces"}, "ISTIO_EXCLUDE_INTERFACES",
			"network `interfaces` whose traffic is left alone", func(s *Settings) *string { return &s.ExcludeInterfaces }},
		{"kubevirt-interfaces", []string{"istio.io/reroute-virtual-interfaces", traffic + "kubevirtInterfaces"}, "",
			"network `interfaces` of virtual machines: what comes in there is outbound", func(s *Settings) *string { return &s.KubevirtInterfaces }},
		{"proxy-uid", nil, "ENVOY_UID", "user `ids` whose connections are the sidecar's own", func(s *Settings) *string { return &s.ProxyUID }},
		{"proxy-gid", nil, "ENVOY_GID", "exclude processes with these group `ids` too", func(s *Settings) *string { return &s.ProxyGID }},
		{"drop-invalid", nil, "INVALID_DROP", "drop packets that belong to no connection (true or false)", func(s *Settings) *string { return &s.DropInvalid }},
		{"capture-dns", nil, "ISTIO_META_DNS_CAPTURE", "let the sidecar's DNS proxy answer names (true or false)", func(s *Settings) *string { return &s.CaptureDNS }},
		// Without Istio's variables, ENVOY_PORT and INBOUND_CAPTURE_PORT: a Service of the name envoy has Kubernetes set the first
		// one to an address, in each container of its namespace.
		{"envoy-port", nil, "", "`port` of Envoy where outbound connections go: proxyListenPort of the mesh", func(s *Settings) *string { return &s.OutboundPort }},
		{"inbound-capture-port", nil, "", "`port` of Envoy where inbound connections go: proxyInboundListenPort of the mesh", func(s *Settings) *string { return &s.InboundPort }},
	}
}

// Annotated is these settings with what a Pod's annotations say over them.
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

// Ports of a sidecar, which are Istio's; the first two are defaults.
const (
	DefaultOutboundPort = 15001
	DefaultInboundPort  = 15006
	DefaultTunnelPort   = 15008
	DefaultDNSPort      = 15053
	ProxyID             = 1337 // user and group of Envoy
)

// ownPorts are the sidecar's, which others call directly: metrics, readiness, Envoy's metrics.
var ownPorts = []uint16{15020, 15021, 15090}

// Ports is a list of ports, or all of them.
type Ports struct {
	All  bool
	List []uint16
}

// Ranges is a list of address ranges, or all addresses.
type Ranges struct {
	All  bool
	List []netip.Prefix
}

// Config is settings that were understood.
type Config struct {
	Mode                      string
	OutboundPort, InboundPort uint16
	DNSPort                   uint16
	UIDs, GIDs                []uint32
	InboundPorts              Ports
	NotInboundPorts           []uint16 // with the sidecar's own
	OutboundPorts             Ports
	NotOutboundPorts          []uint16
	Outbound                  Ranges
	NotOutbound               []netip.Prefix
	NotInterfaces             []string
	Kubevirt                  []string
	DropInvalid, CaptureDNS   bool
	IPv6                      bool         // the namespace has IPv6 addresses, and Envoy listens there
	DNSServers                []netip.Addr // whose questions are captured; none: all
}

// Parse checks settings. Its errors name flag and annotation, and say what was expected.
func (s Settings) Parse() (*Config, error) {
	c := &Config{Mode: strings.ToUpper(s.Mode), DNSPort: DefaultDNSPort}
	p := &parser{settings: &s}
	c.OutboundPort, c.InboundPort = p.port("envoy-port"), p.port("inbound-capture-port")
	if p.err == nil && c.OutboundPort == c.InboundPort {
		p.fail("inbound-capture-port", "%d is --envoy-port, too: use two ports", c.InboundPort)
	}
	if c.Mode != ModeRedirect && c.Mode != ModeTProxy && c.Mode != ModeNone {
		p.fail("interception-mode", "%q is none of REDIRECT, TPROXY, NONE", s.Mode)
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
		p.fail("proxy-uid", "without --proxy-uid and --proxy-gid Envoy's own connections would come back to it for ever")
	}
	return c, p.err
}
