package intercept

import "net/netip"

// Chains that other chains jump to.
const (
	chainInbound    = "inbound"      // selects the inbound connections to intercept
	chainInRedirect = "in_redirect"  // redirects to Envoy's inbound listener
	chainRedirect   = "out_redirect" // redirects to Envoy's outbound listener
	chainDivert     = "divert"       // TPROXY: packets of connections that Envoy has accepted
	chainTProxy     = "in_tproxy"    // TPROXY: new connections
	chainDrop       = "drop_invalid"
	chainDNS        = "dns"
	chainDNSZones   = "dns_zones"
)

const loopback = "lo"

// Special addresses.
var (
	localhost4 = netip.MustParsePrefix("127.0.0.1/32")
	localhost6 = netip.MustParsePrefix("::1/128")
	// inboundSource is the source of Envoy's connections to its application, which distinguishes them from the
	// application's connections.
	inboundSource4 = netip.MustParsePrefix("127.0.0.6/32")
	inboundSource6 = netip.MustParsePrefix("::6/128")
)

// Plan returns the rules for a configuration.
func Plan(c *Config) *Ruleset {
	p := &planner{Config: c, rules: &Ruleset{IPv6: c.IPv6}}
	if c.Mode == ModeNone {
		return p.rules
	}
	p.planInbound()
	p.planOutbound()
	if c.Mode == ModeTProxy {
		p.planMarks()
	}
	if c.CaptureDNS {
		p.planDNS()
	}
	p.planInvalid()
	if !c.IPv6 {
		p.leaveIPv6()
	}
	return p.rules
}

// leaveIPv6 skips IPv6 before all other rules: Envoy does not listen there.
func (p *planner) leaveIPv6() {
	for i := range p.rules.Chains {
		if c := &p.rules.Chains[i]; c.Hook != "" {
			c.Rules = append([]Rule{{Family: IP6, Do: returns}}, c.Rules...)
		}
	}
}

type planner struct {
	*Config
	rules *Ruleset
}

// add appends rules to a chain, and creates the chain if needed. It skips rules of IPv6 if IPv6 is not intercepted.
func (p *planner) add(table Table, name string, rules ...Rule) {
	c := p.chain(table, name)
	for _, r := range rules {
		if r.Family != IP6 || p.IPv6 {
			c.Rules = append(c.Rules, r)
		}
	}
}

func (p *planner) chain(table Table, name string) *Chain {
	for i := range p.rules.Chains {
		if c := &p.rules.Chains[i]; c.Table == table && c.Name == name {
			return c
		}
	}
	p.rules.Chains = append(p.rules.Chains, Chain{Table: table, Name: name})
	return &p.rules.Chains[len(p.rules.Chains)-1]
}

// hooked appends rules to a chain that the kernel enters.
func (p *planner) hooked(table Table, hook Hook, rules ...Rule) {
	name := string(table) + "_" + string(hook)
	p.add(table, name, rules...)
	p.chain(table, name).Hook = hook
}

// planInbound plans connections from other hosts.
func (p *planner) planInbound() {
	table := NAT
	if p.Mode == ModeTProxy {
		table = Mangle
	}
	p.leaveInterfaces(NAT)
	if table == Mangle {
		p.leaveInterfaces(Mangle)
	}
	p.virtualMachines()
	if !p.InboundPorts.All && len(p.InboundPorts.List) == 0 {
		return
	}
	p.hooked(table, Prerouting, Rule{Proto: TCP, Do: jump(chainInbound)})
	if table == Mangle {
		p.planTProxy()
		return
	}
	p.add(NAT, chainInRedirect, Rule{Proto: TCP, Do: redirect(p.InboundPort)})
	p.selectInbound(NAT, Rule{Proto: TCP, Do: jump(chainInRedirect)})
}

// leaveInterfaces skips packets of excluded interfaces.
func (p *planner) leaveInterfaces(t Table) {
	for _, i := range p.NotInterfaces {
		p.hooked(t, Prerouting, Rule{In: i, Do: returns})
		p.hooked(t, Output, Rule{Out: i, Do: returns})
	}
}

// virtualMachines makes connections from virtual machines outbound.
func (p *planner) virtualMachines() {
	for _, i := range p.Kubevirt {
		if p.Outbound.All {
			p.hooked(NAT, Prerouting, Rule{In: i, Do: jump(chainRedirect)})
		}
		for _, r := range p.Outbound.List {
			p.hooked(NAT, Prerouting, Rule{Family: family(r), In: i, Dest: is(r), Do: jump(chainRedirect)})
		}
		p.hooked(NAT, Prerouting, Rule{In: i, Do: returns})
	}
}

// selectInbound applies rules to the intercepted ports.
func (p *planner) selectInbound(table Table, rules ...Rule) {
	p.add(table, chainInbound, Rule{Proto: TCP, DestPort: is[uint16](DefaultTunnelPort), Do: returns})
	for _, port := range p.NotInboundPorts {
		p.add(table, chainInbound, Rule{Proto: TCP, DestPort: is(port), Do: returns})
	}
	if p.InboundPorts.All {
		p.add(table, chainInbound, rules...)
		return
	}
	for _, port := range p.InboundPorts.List {
		for _, r := range rules {
			r.DestPort = is(port)
			p.add(table, chainInbound, r)
		}
	}
}

// planOutbound plans connections that programs of this namespace open.
func (p *planner) planOutbound() {
	p.add(NAT, chainRedirect, Rule{Proto: TCP, Do: redirect(p.OutboundPort)})
	for _, port := range p.NotOutboundPorts {
		p.hooked(NAT, Output, Rule{Proto: TCP, DestPort: is(port), Do: returns}, Rule{Proto: UDP, DestPort: is(port), Do: returns})
	}
	p.hooked(NAT, Output,
		Rule{Family: IP4, Out: loopback, Source: inboundSource4, Do: returns},
		Rule{Family: IP6, Out: loopback, Source: inboundSource6, Do: returns})
	if p.Probe {
		p.redirectProbe()
	}
	for _, id := range p.UIDs {
		p.own(func(r *Rule, c Cond[uint32]) { r.UID = c }, id)
	}
	for _, id := range p.GIDs {
		p.own(func(r *Rule, c Cond[uint32]) { r.GID = c }, id)
	}
	if p.CaptureDNS {
		p.hooked(NAT, Output, Rule{Do: jump(chainDNS)})
	}
	p.hooked(NAT, Output,
		Rule{Family: IP4, Dest: is(localhost4), Do: returns},
		Rule{Family: IP6, Dest: is(localhost6), Do: returns})
	for _, r := range p.NotOutbound {
		p.hooked(NAT, Output, Rule{Family: family(r), Dest: is(r), Do: returns})
	}
	p.selectOutbound()
}

// redirectProbe redirects the connection of Check, of any user. The rules before it, and the mark of Envoy's
// connections in mode TPROXY, keep Envoy from calling itself if an application calls the address.
func (p *planner) redirectProbe() {
	p.hooked(NAT, Output, Rule{
		Family: IP4, Proto: TCP, Dest: is(netip.PrefixFrom(probe.Addr(), probe.Addr().BitLen())), DestPort: is(probe.Port()),
		Mark: not[uint32](inboundMark), Do: redirect(p.InboundPort),
	})
}

// own plans connections of the sidecar, by the id of their owner:
//
//   - to this host, but not to 127.0.0.1 or ::1: the application called a service, and this instance was chosen. The
//     connection is inbound, and goes to the inbound listener.
//   - to a DNS server on this host, if questions are captured: unchanged.
//   - of other programs to this host: unchanged.
//   - to other hosts: unchanged.
func (p *planner) own(owned func(*Rule, Cond[uint32]), id uint32) {
	rule := func(r Rule, c Cond[uint32]) Rule {
		owned(&r, c)
		return r
	}
	if p.Mode == ModeRedirect && (p.InboundPorts.All || len(p.InboundPorts.List) > 0) {
		back := Rule{Out: loopback, Proto: TCP, DestPort: not[uint16](DefaultTunnelPort), Do: jump(chainInRedirect)}
		v4, v6 := back, back
		v4.Family, v4.Dest = IP4, not(localhost4)
		v6.Family, v6.Dest = IP6, not(localhost6)
		if p.CaptureDNS {
			p.hooked(NAT, Output, rule(Rule{Out: loopback, Proto: TCP, DestPort: is[uint16](dnsPort), Do: returns}, is(id)))
		}
		p.hooked(NAT, Output, rule(v4, is(id)), rule(v6, is(id)))
	}
	if !p.includesLoopback() {
		others := Rule{Out: loopback, Do: returns}
		if p.CaptureDNS { // a DNS server may be on this host
			others.Proto, others.DestPort = TCP, not[uint16](dnsPort)
		}
		p.hooked(NAT, Output, rule(others, not(id)))
	}
	p.hooked(NAT, Output, rule(Rule{Do: returns}, is(id)))
}

// includesLoopback reports whether the intercepted ranges include loopback addresses.
func (p *planner) includesLoopback() bool {
	for _, r := range p.Outbound.List {
		if r.Addr().IsLoopback() {
			return true
		}
	}
	return false
}

// selectOutbound intercepts the remaining connections, by port and by range.
func (p *planner) selectOutbound() {
	if p.OutboundPorts.All {
		p.hooked(NAT, Output, Rule{Proto: TCP, Do: jump(chainRedirect)})
	}
	for _, port := range p.OutboundPorts.List {
		p.hooked(NAT, Output, Rule{Proto: TCP, DestPort: is(port), Do: jump(chainRedirect)})
	}
	if p.Outbound.All {
		p.hooked(NAT, Output, Rule{Do: jump(chainRedirect)})
	}
	for _, r := range p.Outbound.List {
		p.hooked(NAT, Output, Rule{Family: family(r), Dest: is(r), Do: jump(chainRedirect)})
	}
}

// planInvalid drops packets out of a connection's window, for which the kernel would reset the connection. It comes
// first in its table.
func (p *planner) planInvalid() {
	if !p.DropInvalid {
		return
	}
	p.add(Mangle, chainDrop, Rule{Do: Action{Kind: Drop}})
	p.hooked(Mangle, Prerouting)
	c := p.chain(Mangle, string(Mangle)+"_"+string(Prerouting))
	c.Rules = append([]Rule{{Proto: TCP, State: Invalid, Do: jump(chainDrop)}}, c.Rules...)
}

func family(r netip.Prefix) Family {
	if r.Addr().Is6() {
		return IP6
	}
	return IP4
}
