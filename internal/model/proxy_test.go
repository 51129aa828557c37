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

func TestIdentity(t *testing.T) {
	for _, id := range []string{"spiffe://cluster.local/ns/shop/sa/web", "spiffe://Td_1/ns/a.b/sa/c-d"} {
		i, err := ParseIdentity(id)
		require.NoError(t, err)
		require.Equal(t, id, i.String())
	}
	for id, problem := range map[string]string{
		"https://cluster.local/ns/shop/sa/web":      "not a SPIFFE id",
		"spiffe://cluster.local/ns/shop":            "form",
		"spiffe://cluster.local/ns/shop/sa/web/x":   "form",
		"spiffe://cluster.local/NS/shop/sa/web":     "form",
		"spiffe:///ns/shop/sa/web":                  "trust domain is missing",
		"spiffe://td/ns//sa/web":                    "namespace is missing",
		"spiffe://td/ns/shop/sa/":                   "service account is missing",
		"spiffe://td/ns/sh op/sa/web":               `"sh op" is not a valid namespace`,
		"spiffe://td:443/ns/shop/sa/web":            `"td:443" is not a valid trust domain`,
		"spiffe://td/ns/shop/sa/web?x=1":            `"web?x=1" is not a valid service account`,
		"spiffe://cluster.local/ns/shop/sa/%77eb":   `"%77eb" is not a valid service account`,
		"spiffe://cluster.local/ns/shop/sa/web\x00": "is not a valid service account",
	} {
		_, err := ParseIdentity(id)
		require.ErrorContains(t, err, problem, id)
	}
}
