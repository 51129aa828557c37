package intercept

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

const dnsPort = 53

// ResolvConf is the file with the DNS servers of this machine or Pod.
const ResolvConf = "/etc/resolv.conf"

// Zones of connection tracking. They separate UDP flows with equal addresses: those of the sidecar to DNS servers, and
// those of applications to the sidecar.
const (
	zoneServers = 1
	zoneClients = 2
)

// planDNS redirects questions to DNS servers to the sidecar's DNS proxy, without the sidecar's own.
func (p *planner) planDNS() {
	for _, s := range p.dnsServers() {
		for _, proto := range []Proto{TCP, UDP} {
			r := s
			r.Proto, r.DestPort, r.Do = proto, is[uint16](dnsPort), redirect(p.DNSPort)
			p.add(NAT, chainDNS, r)
		}
	}
	zone := func(z uint32) Action { return Action{Kind: SetZone, Value: z} }
	p.hooked(Raw, Output, Rule{Do: jump(chainDNSZones)})
	own := []Rule{
		{Proto: UDP, DestPort: is[uint16](dnsPort), Do: zone(zoneServers)},
		{Proto: UDP, SourcePort: p.DNSPort, Do: zone(zoneClients)},
	}
	// The first zone that is set applies.
	for _, r := range own {
		for _, id := range p.UIDs {
			r.UID, r.GID = is(id), Cond[uint32]{}
			p.add(Raw, chainDNSZones, r)
		}
		for _, id := range p.GIDs {
			r.UID, r.GID = Cond[uint32]{}, is(id)
			p.add(Raw, chainDNSZones, r)
		}
	}
	for _, s := range p.dnsServers() {
		r := s
		r.Proto, r.DestPort, r.Do = UDP, is[uint16](dnsPort), zone(zoneClients)
		p.add(Raw, chainDNSZones, r)
		from := Rule{Family: s.Family, Source: s.Dest.Value, Proto: UDP, SourcePort: dnsPort, Do: zone(zoneServers)}
		p.hooked(Raw, Prerouting, from)
	}
}

// CaptureServersOf limits the capture of DNS to the servers of a resolv.conf, as Istio does outside of its CNI plugin.
// Questions of a resolver on this host to its own servers then stay as they are. Redirected, they would come back to it.
func (c *Config) CaptureServersOf(file string) error {
	if !c.CaptureDNS {
		return nil
	}
	conf, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return fmt.Errorf("--capture-dns: cannot read the DNS servers: %w: correct --resolv-conf", err)
	}
	if len(conf.Servers) == 0 { // the default of resolvers
		conf.Servers = []string{localhost4.Addr().String(), localhost6.Addr().String()}
	}
	c.DNSServers = nil
	for _, s := range conf.Servers {
		if a, err := netip.ParseAddr(s); err == nil && !slices.Contains(c.DNSServers, a.WithZone("")) {
			c.DNSServers = append(c.DNSServers, a.WithZone(""))
		}
	}
	if len(c.DNSServers) == 0 {
		return fmt.Errorf("--capture-dns: %s: no address of a DNS server: correct the file, or set --resolv-conf", file)
	}
	return nil
}

// dnsServers returns a rule for each server whose questions are redirected, or one for all servers.
func (p *planner) dnsServers() []Rule {
	if len(p.DNSServers) == 0 {
		return []Rule{{}}
	}
	var out []Rule
	for _, a := range p.DNSServers {
		r := netip.PrefixFrom(a, a.BitLen())
		out = append(out, Rule{Family: family(r), Dest: is(r)})
	}
	return out
}
