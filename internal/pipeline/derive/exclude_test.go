package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestEgressExclusions holds that an excluding entry wins wherever it stands, and that
// alone it selects nothing.
func TestEgressExclusions(t *testing.T) {
	all := model.HostSelector{Namespace: "*", Host: "*"}
	notShop := model.HostSelector{Namespace: "shop", Host: "*", Exclude: true}
	notA := model.HostSelector{Namespace: "*", Host: "a.example.com", Exclude: true}
	listen := func(hosts ...model.HostSelector) *egress {
		return &egress{EgressListener: model.EgressListener{Hosts: hosts}}
	}
	for _, e := range []*egress{listen(all, notShop, notA), listen(notA, notShop, all)} {
		require.False(t, e.imports("shop", "b.example.com"))
		require.False(t, e.imports("other", "a.example.com"))
		require.True(t, e.imports("other", "b.example.com"))
	}
	require.False(t, listen(notA).imports("other", "b.example.com"))
	require.False(t, listen(notA).importsAny("other", []model.Host{"b.example.com"}))
}
