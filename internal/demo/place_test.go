package demo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlacesDoNotOverlap(t *testing.T) {
	one, releaseOne, err := choosePlace(t.Context(), 3)
	require.NoError(t, err)
	defer releaseOne()
	two, releaseTwo, err := choosePlace(t.Context(), 3)
	require.NoError(t, err)
	require.NotEqual(t, one.Subnet, two.Subnet, "the first one's subnet is claimed")
	releaseTwo()
}

func TestTakenPortsAreSeen(t *testing.T) {
	p, release, err := choosePlace(t.Context(), 2)
	require.NoError(t, err)
	release()
	l, err := listen(t.Context(), p.IP(Workload{Number: 2}), p.AppPort)
	require.NoError(t, err)
	defer l.Close()
	_, err = p.claim(t.Context(), 2)
	require.ErrorContains(t, err, l.Addr().String())
}

func TestFreeAddressTakesAnother(t *testing.T) {
	l, err := listen(t.Context(), "127.0.0.1", 0)
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().String()
	var number uint16
	for _, digit := range port[len("127.0.0.1:"):] {
		number = number*10 + uint16(digit-'0')
	}
	other, err := freeAddress(t.Context(), number)
	require.NoError(t, err)
	require.NotEqual(t, port, other)
}

func TestOptions(t *testing.T) {
	o := Options{}
	require.NoError(t, o.check())
	require.Equal(t, DefaultWorkloads, o.Workloads)
	for _, wrong := range []Options{{Workloads: MinWorkloads - 1}, {Workloads: MaxWorkloads + 1}, {Rate: -1}, {Rate: MaxRate + 1}} {
		require.Error(t, wrong.check())
	}
}
