package intercept

// Routing for TPROXY: packets with the mark belong to this host.
const (
	inboundMark  = 1337 // of packets for Envoy, and of its connections to the application
	outboundMark = 1338 // of Envoy's outbound connections to this host
	routeTable   = 133
)

// planTProxy delivers inbound connections to Envoy's socket with their original destination. Without address
// translation Envoy can call the application from its client's address.
func (p *planner) planTProxy() {
	p.rules.Routing = true
	p.add(Mangle, chainDivert, Rule{Do: setMark(inboundMark)}, Rule{Do: Action{Kind: Accept}})
	to := Action{Kind: TProxy, Port: p.InboundPort, Value: inboundMark}
	// Without Envoy's socket, nftables goes on to the next rule, and iptables drops. Without the second pair of rules the
	// application would get the connection.
	for _, do := range []Action{to, {Kind: Drop}} {
		p.add(Mangle, chainTProxy,
			Rule{Family: IP4, Proto: TCP, Dest: not(localhost4), Do: do},
			Rule{Family: IP6, Proto: TCP, Dest: not(localhost6), Do: do})
	}
	p.add(Mangle, chainInbound,
		// Packets of a connection that Envoy has accepted.
		Rule{Proto: TCP, Mark: is[uint32](inboundMark), Do: returns},
		Rule{Family: IP4, In: loopback, Proto: TCP, Source: inboundSource4, Do: returns},
		Rule{Family: IP6, In: loopback, Proto: TCP, Source: inboundSource6, Do: returns},
		// The application calls itself at its own address.
		Rule{In: loopback, Proto: TCP, Mark: not[uint32](outboundMark), Do: returns})
	p.selectInbound(Mangle,
		Rule{Proto: TCP, State: Established, Do: jump(chainDivert)},
		Rule{Proto: TCP, Do: jump(chainTProxy)})
}

// planMarks returns answers to connections that Envoy opened from its client's address to Envoy, and distinguishes
// Envoy's connections to this host.
func (p *planner) planMarks() {
	p.hooked(Mangle, Prerouting, Rule{Proto: TCP, Mark: is[uint32](inboundMark), Do: Action{Kind: SaveMark}})
	p.hooked(Mangle, Output, Rule{Out: loopback, Proto: TCP, Mark: is[uint32](inboundMark), Do: returns})
	base := Rule{Out: loopback, Proto: TCP, Do: setMark(outboundMark)}
	if p.CaptureDNS {
		base.DestPort = not[uint16](dnsPort) // a DNS server may be on this host
	}
	for _, id := range p.UIDs {
		v4, v6 := base, base
		v4.Family, v4.Dest, v4.UID = IP4, not(localhost4), is(id)
		v6.Family, v6.Dest, v6.UID = IP6, not(localhost6), is(id)
		p.hooked(Mangle, Output, v4, v6)
	}
	for _, id := range p.GIDs {
		v4, v6 := base, base
		v4.Family, v4.Dest, v4.GID = IP4, not(localhost4), is(id)
		v6.Family, v6.Dest, v6.GID = IP6, not(localhost6), is(id)
		p.hooked(Mangle, Output, v4, v6)
	}
	p.hooked(Mangle, Output, Rule{Proto: TCP, ConnMark: is[uint32](inboundMark), Do: Action{Kind: RestoreMark}})
}
