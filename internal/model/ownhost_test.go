package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestOwnHost checks which addresses reach the proxy's own host.
func TestOwnHost(t *testing.T) {
	for address, want := range map[string]bool{
		"unix:///var/run/secrets/workload-spiffe-uds/socket": true, "/var/run/sds": true, "@abstract": true,
		"127.0.0.1": true, "127.255.1.2": true, "0.0.0.0": true, "0.1.2.3": true, "169.254.169.254": true, "::1": true, "::": true,
		"::ffff:127.0.0.1": true, "fe80::1": true, "fe80::1%eth0": true, "224.0.0.1": true,
		"localhost": true, "LocalHost.": true, "api.localhost": true, "localhost.localdomain": true, "ip6-loopback": true,
		"127.1": true, "1.1": true, "2130706433": true, "0x7f.1": true,
		"10.0.0.1": false, "100.64.0.1": false, "192.0.2.1": false, "12.7.0.1": false, "2001:db8::1": false, "fd00::1": false,
		"api.example.com": false, "1.example.com": false, "localhost.example.com": false, "": false,
	} {
		t.Run(address, func(t *testing.T) { require.Equal(t, want, model.IsOwnHost(address)) })
	}
}
