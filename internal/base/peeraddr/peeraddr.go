// Package peeraddr reads the addresses of peers of connections.
package peeraddr

import "net/netip"

// IP returns the IP address in "address:port", an IPv4 address in its short form. The result is the zero value,
// which is not a loopback address, if peer has another form.
func IP(peer string) netip.Addr {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
