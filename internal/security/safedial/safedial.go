// Package safedial connects to servers that are named in users' objects: servers of JSON Web Key Sets and of Wasm
// modules. Authors of such objects must not reach what only this machine can reach: clouds serve the machine's
// credentials to requests from it, and debug pages need no credentials on loopback addresses. Other addresses of the
// cluster and of private networks are allowed, since mesh-internal servers are there.
package safedial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Timeouts of http.DefaultTransport.
const (
	timeout   = 30 * time.Second
	keepAlive = 30 * time.Second
)

// Dialer connects to addresses outside this machine.
type Dialer struct {
	AllowLoopback bool           // for local development
	Blocked       []netip.Prefix // further addresses that must not be reached
}

// Dial connects to an address. It checks addresses instead of names, which may resolve to anything; that covers
// redirects too.
func (d Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout, KeepAlive: keepAlive, Control: d.control}
	return dialer.DialContext(ctx, network, address)
}

// metadata are the addresses of cloud metadata services that are not link-local: those of Alibaba, Azure, Oracle and
// Amazon (IPv6).
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("fd00:ec2::/32"),
}

// nat64 are IPv6 addresses that contain an IPv4 address, in their last 4 bytes (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// thisHost are IPv4 addresses for which systems use a loopback address.
var thisHost = netip.MustParsePrefix("0.0.0.0/8")

// control checks each address before a connection.
func (d Dialer) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap().WithZone("")
	original := ip // may be of NAT64
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !d.AllowLoopback && (ip.IsLoopback() || ip.IsUnspecified() || thisHost.Contains(ip)) {
		return fmt.Errorf("%s: address not allowed: loopback addresses are blocked, unless --fetch-allow-loopback is set", ip)
	}
	refused := ip.IsLinkLocalUnicast() || ip.IsMulticast()
	for _, r := range metadata {
		refused = refused || r.Contains(ip)
	}
	if refused {
		return fmt.Errorf("%s: address not allowed: link-local addresses and those of cloud metadata services are blocked", ip)
	}
	for _, b := range d.Blocked {
		if b.Contains(ip) || b.Contains(original) {
			return fmt.Errorf("%s: address not allowed: %s is blocked", original, b)
		}
	}
	return nil
}
