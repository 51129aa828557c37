package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// TestDomainOwners checks that the host with the domain's name has it, else the smaller name, in any order of changes.
func TestDomainOwners(t *testing.T) {
	k := outbound.DomainKey{RouteConfig: "80", Domain: "web.shop"}
	o := domainOwners{}
	require.True(t, o.add(k, "c"), "the first one has it")
	require.True(t, o.add(k, "a"))
	require.False(t, o.add(k, "b"))
	require.False(t, o.add(k, "a"), "once")
	require.True(t, o.add(k, "web.shop"), "its own name precedes")
	require.Equal(t, []model.Host{"web.shop", "a", "b", "c"}, o[k])
	require.False(t, o.remove(k, "b"))
	require.False(t, o.remove(k, "unknown"))
	require.True(t, o.remove(k, "web.shop"))
	require.True(t, o.remove(k, "a"))
	require.True(t, o.remove(k, "c"))
	require.Empty(t, o, "nothing is left")
}

// TestRouteUses checks that a route configuration has users as long as some listener uses it.
func TestRouteUses(t *testing.T) {
	u := newRouteUses()
	a, b := ir.ListenerKey{Address: "0.0.0.0", Port: 80}, ir.ListenerKey{Address: "127.0.0.1", Port: 80}
	routes := ir.PortRoutes(80)
	require.Zero(t, u.replace(a, outbound.RouteUse{Routes: routes}))
	require.Zero(t, u.replace(b, outbound.RouteUse{Routes: routes, Bound: true}))
	users := u.users["80"]
	require.Equal(t, []int{2, 1}, []int{users.Total(), users.bound})
	require.Equal(t, routes, u.replace(b, outbound.RouteUse{}))
	users = u.users["80"]
	require.Equal(t, []int{1, 0}, []int{users.Total(), users.bound})
	require.Equal(t, routes, u.replace(a, outbound.RouteUse{Routes: ir.PortRoutes(81)}))
	require.NotContains(t, u.users, "80")
	require.Contains(t, u.users, "81")
}
