// Package safedial connects to servers that are named in users' objects: servers of JSON Web Key Sets and of Wasm
// modules. Authors of such objects must not reach what only this machine can reach: clouds serve the machine's
// credentials to requests from it.
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

var dialer = net.Dialer{Timeout: timeout, KeepAlive: keepAlive, Control: control}

// Dial connects to an address. It checks addresses instead of names, which may resolve to anything; that covers
// redirects too.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// metadata are the addresses of cloud metadata services that are not link-local: those of Alibaba, Azure and Amazon
// (IPv6).
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::/32"),
}

// control checks each address before a connection.
func control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap().WithZone("")
	refused := ip.IsLinkLocalUnicast() || ip.IsMulticast()
	for _, r := range metadata {
		refused = refused || r.Contains(ip)
	}
	if refused {
		return fmt.Errorf("%s: address not allowed: link-local addresses and those of cloud metadata services are blocked", ip)
	}
	return nil
}
