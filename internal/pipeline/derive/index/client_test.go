package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestEgressExclusions checks that an excluding entry wins in any position, and that alone it selects nothing.
func TestEgressExclusions(t *testing.T) {
	all := model.HostSelector{Namespace: "*", Host: "*"}
	notShop := model.HostSelector{Namespace: "shop", Host: "*", Exclude: true}
	notA := model.HostSelector{Namespace: "*", Host: "a.example.com", Exclude: true}
	listen := func(hosts ...model.HostSelector) *Egress {
		return &Egress{EgressListener: model.EgressListener{Hosts: hosts}}
	}
	for _, e := range []*Egress{listen(all, notShop, notA), listen(notA, notShop, all)} {
		require.False(t, e.Imports("shop", "b.example.com"))
		require.False(t, e.Imports("other", "a.example.com"))
		require.True(t, e.Imports("other", "b.example.com"))
	}
	require.False(t, listen(notA).Imports("other", "b.example.com"))
	require.False(t, listen(notA).ImportsAny("other", []model.Host{"b.example.com"}))
}
