package safedial

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlockedAddresses checks that nothing is sent to blocked addresses.
func TestBlockedAddresses(t *testing.T) {
	for _, address := range []string{
		"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fe80::1%lo]:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "168.63.129.16:80", "[ff02::1]:80",
		"192.0.0.192:80", "[64:ff9b::169.254.169.254]:80", "[64:ff9b::6464:64c8]:80",
	} {
		for _, d := range []Dialer{{}, {AllowLoopback: true}} {
			_, err := d.Dial(t.Context(), "tcp", address)
			require.ErrorContains(t, err, "address not allowed", address)
		}
	}
	for _, address := range []string{"10.0.0.1:443", "[fd00::1]:443", "203.0.113.1:443", "[64:ff9b::203.0.113.1]:443", "192.0.0.193:80"} {
		require.NoError(t, Dialer{}.control("tcp", address, nil), address)
	}
	blocks := Dialer{AllowLoopback: true, Blocked: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.1.0.0/16")}}
	for _, address := range []string{"10.1.2.3:443", "[::ffff:10.1.2.3]:443", "[64:ff9b::10.1.2.3]:443", "127.1.0.1:80"} {
		_, err := blocks.Dial(t.Context(), "tcp", address)
		require.ErrorContains(t, err, "is blocked", address)
	}
	require.NoError(t, blocks.control("tcp", "11.0.0.1:443", nil))

	for _, blocked := range []string{"64:ff9b::/96", "64:ff9b::/32", "::/0"} {
		d := Dialer{Blocked: []netip.Prefix{netip.MustParsePrefix(blocked)}}
		require.ErrorContains(t, d.control("tcp", "[64:ff9b::10.1.2.3]:443", nil), "is blocked", blocked)
		require.NoError(t, d.control("tcp", "10.1.2.3:443", nil), blocked)
	}
}

// TestLoopback checks that servers on this machine are reached only if that is allowed.
func TestLoopback(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "0.1.2.3:80", "[::]:80", "[64:ff9b::127.0.0.1]:80", "localhost:80",
	} {
		_, err := Dialer{}.Dial(t.Context(), "tcp", address)
		require.ErrorContains(t, err, "loopback addresses are blocked", address)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	conn, err := Dialer{AllowLoopback: true}.Dial(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
