package peeraddr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
)

func TestIP(t *testing.T) {
	for peer, want := range map[string]struct {
		ip       string
		loopback bool
	}{
		"10.0.0.1:80":           {"10.0.0.1", false},
		"[::ffff:127.0.0.1]:80": {"127.0.0.1", true},
		"[::1]:80":              {"::1", true},
		"[fe80::1%eth0]:80":     {"fe80::1%eth0", false},
		"127.0.0.1":             {"invalid IP", false},
		"localhost:80":          {"invalid IP", false},
		"@":                     {"invalid IP", false}, // of a Unix socket
	} {
		t.Run(peer, func(t *testing.T) {
			ip := peeraddr.IP(peer)
			require.Equal(t, want.ip, ip.String())
			require.Equal(t, want.loopback, ip.IsLoopback())
		})
	}
}
