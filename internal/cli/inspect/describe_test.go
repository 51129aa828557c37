package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
)

func TestResourcesOfDescribedService(t *testing.T) {
	const host = "reviews.shop.svc.cluster.local"
	for _, tc := range []struct {
		kind, name string
		want       bool
	}{
		{"CDS", "outbound|80||" + host, true},
		{"CDS", "outbound|80|v1|" + host, true},
		{"CDS", "outbound|80||my-" + host, false},
		{"CDS", "outbound|81||" + host, false},
		{"CDS", "inbound|80||", false},
		{"CDS", "BlackHoleCluster", false},
		{"VHDS", "80/" + host + ":80", true},
		{"VHDS", "80/my-" + host + ":80", false},
		{"VHDS", "80/" + host + ".example.com:80", false},
		{"VHDS", "81/" + host + ":81", false},
		{"RDS", host + ":9080", true},
		{"RDS", "my-" + host + ":9080", false},
		{"RDS", "80", false},
		{"LDS", host + ":80", false},
	} {
		require.Equal(t, tc.want, routesTo(&explain.ConfigResource{Type: tc.kind, Name: tc.name}, host, []uint32{80, 9080}), "%s %s", tc.kind, tc.name)
	}
}
