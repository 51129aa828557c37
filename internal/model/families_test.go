package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFamilies(t *testing.T) {
	for want, lists := range map[string][][]string{
		"ipv4":       {nil, {"10.0.0.1"}, {"here"}, {"::ffff:10.0.0.1"}},
		"ipv6":       {{"fd00::1"}, {"fd00::1", "fd00::2"}, {"", "::1"}},
		"dual-stack": {{"10.0.0.1", "fd00::1"}, {"fd00::1", "10.0.0.1"}},
	} {
		for _, ips := range lists {
			require.Equal(t, want, (&Proxy{IPs: ips}).Families().String(), ips)
		}
	}
}
