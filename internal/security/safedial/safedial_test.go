package safedial

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlockedAddresses checks that nothing is sent to blocked addresses.
func TestBlockedAddresses(t *testing.T) {
	for _, address := range []string{
		"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fe80::1%lo]:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "168.63.129.16:80", "[ff02::1]:80",
	} {
		_, err := Dial(t.Context(), "tcp", address)
		require.ErrorContains(t, err, "address not allowed", address)
	}
	for _, address := range []string{"10.0.0.1:443", "[fd00::1]:443", "203.0.113.1:443", "127.0.0.1:80", "[::1]:80"} {
		require.NoError(t, control("tcp", address, nil), address)
	}
}

func TestOthersAreReached(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	conn, err := Dial(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
