// Package safedial connects to servers that somebody has named in an object of the mesh: where keys of tokens are, or a
// plugin. Who may write such objects may not reach what this machine can reach because of where it stands: clouds tell
// whoever asks from there the machine's own credentials.
package safedial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Timing, as that of http.DefaultTransport.
const (
	timeout   = 30 * time.Second
	keepAlive = 30 * time.Second
)

var dialer = net.Dialer{Timeout: timeout, KeepAlive: keepAlive, Control: control}

// Dial connects. It is looked at addresses and not at names, which may lead anywhere, and so at those of redirections, too.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// metadata are the addresses beside those of the link at which clouds tell machines about themselves: Alibaba's, Azure's
// and Amazon's of IPv6.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("fd00:ec2::/32"),
}

// control is asked about each address before anything is sent to it.
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
