package child

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Unsent reports whether the kernel holds bytes that a server at addr has sent to the peer at to, and
// that the peer does not take. Both are IPv4 addresses.
func Unsent(addr string, to net.Addr) (bool, error) {
	const table = "/proc/net/tcp"
	from, err := netip.ParseAddrPort(addr)
	if err != nil || to == nil {
		return false, err
	}
	peer, err := netip.ParseAddrPort(to.String())
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(table)
	if err != nil {
		return false, fmt.Errorf("unsent bytes: %w", err)
	}
	local, remote := hexAddr(from), hexAddr(peer)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[1] != local || f[2] != remote {
			continue
		}
		queue, _, _ := strings.Cut(f[4], ":")
		n, err := strconv.ParseUint(queue, 16, 64)
		return n > 0, err
	}
	return false, nil
}

// hexAddr is an address as the kernel's table has it on little-endian machines.
func hexAddr(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}
