package fleet

import (
	"net/netip"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func TestAddressesThatTakeRequests(t *testing.T) {
	var list []*endpointv3.LbEndpoint
	for _, e := range []struct {
		address string
		health  corev3.HealthStatus
	}{
		{"10.0.0.2", corev3.HealthStatus_UNKNOWN}, {"10.0.0.1", corev3.HealthStatus_HEALTHY},
		{"10.0.0.3", corev3.HealthStatus_DRAINING}, {"10.0.0.4", corev3.HealthStatus_UNHEALTHY}, {"a name", corev3.HealthStatus_UNKNOWN},
	} {
		socket := &corev3.SocketAddress{Address: e.address}
		list = append(list, &endpointv3.LbEndpoint{HealthStatus: e.health, HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: socket}}}}})
	}
	b, err := proto.Marshal(&endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: list}}})
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, addressesOf(b))
	require.Empty(t, addressesOf([]byte{0xff}))
}

// TestContentIsHeldUntilLastProxyReplacesIt checks contents while two proxies replace them one after the other, and when their
// cluster is removed.
func TestContentIsHeldUntilLastProxyReplacesIt(t *testing.T) {
	c := NewCatalog()
	c.Follow()
	var proxies [2]following
	send := func(i int, k Kind, version string) {
		in := received{name: []byte("c"), version: []byte(version), removed: version == ""}
		list, _ := c.resolve(k, []received{in}, nil)
		proxies[i].note(k, list)
	}
	tell := func(i int) { proxies[i].tell(c.follower) }
	ends := func() (open []bool) {
		for _, h := range c.Held() {
			for _, s := range h.Spans {
				open = append(open, s.To.IsZero())
			}
		}
		return open
	}
	send(0, EDS, "1")
	require.Empty(t, ends(), "the ACK is not written")
	tell(0)
	send(1, EDS, "1")
	tell(1)
	require.Equal(t, []bool{true}, ends())
	send(0, EDS, "2")
	tell(0)
	require.Equal(t, []bool{true, true}, ends(), "the other proxy holds the old content")
	send(1, EDS, "2")
	tell(1)
	require.Equal(t, []bool{false, true}, ends())
	held := c.Held()
	require.Equal(t, "c", held[0].Cluster)
	require.False(t, held[0].Spans[0].To.Before(held[1].Spans[0].From))
	require.WithinDuration(t, time.Now(), held[0].Spans[0].To, time.Minute)

	send(0, EDS, "1")
	tell(0)
	require.Len(t, c.Held()[0].Spans, 2, "it is held again")
	for i := range proxies {
		send(i, CDS, "")
		tell(i)
	}
	require.Equal(t, []bool{false, false, false}, ends(), "nothing is held of a cluster that is gone")
}
