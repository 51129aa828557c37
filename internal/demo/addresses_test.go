package demo

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressesDoNotOverlap(t *testing.T) {
	one, releaseOne, err := chooseAddresses(t.Context(), 3)
	require.NoError(t, err)
	defer releaseOne()
	two, releaseTwo, err := chooseAddresses(t.Context(), 3)
	require.NoError(t, err)
	require.NotEqual(t, one.Subnet, two.Subnet, "the first one's subnet is claimed")
	releaseTwo()
}

func TestPortsInUse(t *testing.T) {
	p, release, err := chooseAddresses(t.Context(), 2)
	require.NoError(t, err)
	defer release()
	ip := p.IP(Workload{Number: 2})
	require.NoError(t, p.free(t.Context(), ip))
	l, err := listen(t.Context(), ip, p.AppPort)
	require.NoError(t, err)
	defer l.Close()
	require.ErrorContains(t, p.free(t.Context(), ip), l.Addr().String())
}

func TestFreeAddress(t *testing.T) {
	p := Addresses{Subnet: firstSubnet + 1}
	const wanted = 15300
	one, err := p.freeAddress(t.Context(), wanted)
	require.NoError(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", one)
	require.NoError(t, err)
	defer l.Close()
	other, err := p.freeAddress(t.Context(), wanted)
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}

func TestOptions(t *testing.T) {
	o := Options{}
	require.NoError(t, o.check())
	require.Equal(t, DefaultWorkloads, o.Workloads)
	for _, wrong := range []Options{{Workloads: MinWorkloads - 1}, {Workloads: MaxWorkloads + 1}, {Rate: -1}, {Rate: MaxRate + 1}} {
		require.Error(t, wrong.check())
	}
}
