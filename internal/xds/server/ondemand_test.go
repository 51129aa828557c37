package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	clusterservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// onDemandHarness is a harness whose outbound table has clusters on demand: d1 and d2. The cluster c1 is not.
func onDemandHarness(t *testing.T, on Transport) *harness {
	h := newHarness(t, on, Options{})
	h.out = table.NewOnDemand("out", nil)
	h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"),
		onDemand("d1", "1"), endpoints("d1", "1"), onDemand("d2", "1"), endpoints("d2", "1"))
	return h
}

// notOnDemand is a cluster in a table that has all clusters.
func notOnDemand(name, variant string) table.Update {
	return encode(resource.Cluster, name, byName(name, variant))
}

// byName is a cluster that requests endpoints by its name.
func byName(name, variant string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, AltStatName: variant, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name}}
}

// onDemand is a cluster on demand.
func onDemand(name, variant string) table.Update {
	e, err := resource.EncodeOnDemand(name, byName(name, variant), func(c *clusterv3.Cluster, s string) { c.EdsClusterConfig.ServiceName = s })
	if err != nil {
		panic(err)
	}
	return table.Update{Type: resource.Cluster, Name: name, Resource: e}
}

// capable makes a client an Envoy that can ask for clusters.
func (c *client) capable() *client {
	c.node.UserAgentName = "envoy"
	c.node.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{
		UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}},
	}
	return c
}

// asking connects the stream on which a proxy asks for clusters by name.
func (h *harness) asking() *client {
	c := h.connectBy(nodeID, "", func(ctx context.Context, conn *grpc.ClientConn) (deltaStream, error) {
		return clusterservicev3.NewClusterDiscoveryServiceClient(conn).DeltaClusters(ctx)
	})
	close(c.read)
	return c.capable()
}

// part connects the stream of everything, and takes what precedes the first call.
func (h *harness) part() *client {
	c := h.connect("").capable()
	c.subscribe(resource.Cluster)
	c.take(resource.Cluster, "c1")
	c.subscribe(resource.Endpoints, "c1")
	c.take(resource.Endpoints, "c1")
	c.subscribe(resource.Listener)
	c.take(resource.Listener, "l1")
	return c
}

// named returns the name by which the newest form of a cluster requests its endpoints.
func (h *harness) named(cluster string) string {
	return resource.EndpointsName(cluster, h.out.State().Get(resource.Cluster, cluster).Version)
}

// decoded decodes a resource of a response.
func decoded[M proto.Message](t *testing.T, r *discoveryv3.DeltaDiscoveryResponse, name string, into M) M {
	t.Helper()
	for _, res := range r.Resources {
		if res.Name == name {
			require.NoError(t, res.Resource.UnmarshalTo(into))
			return into
		}
	}
	t.Fatalf("no resource %s", name)
	return into
}

func onDemandTest(t *testing.T, test func(*testing.T, *harness)) {
	overEach(t, func(t *testing.T, on Transport) { test(t, onDemandHarness(t, on)) })
}

func TestAskedClusterAndItsEndpoints(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads, asks := h.part(), h.asking()
		asks.subscribe(resource.Cluster, "d1")
		c := decoded(t, asks.take(resource.Cluster, "d1"), "d1", &clusterv3.Cluster{})
		require.Equal(t, h.named("d1"), c.EdsClusterConfig.ServiceName)
		ads.subscribe(resource.Endpoints, h.named("d1"))
		e := decoded(t, ads.take(resource.Endpoints, h.named("d1")), h.named("d1"), &endpointv3.ClusterLoadAssignment{})
		require.Equal(t, h.named("d1"), e.ClusterName)
		require.Equal(t, "1", e.Endpoints[0].Locality.Zone)

		h.commit(endpoints("d1", "2"), endpoints("d2", "2")) // of d2 the proxy has nothing
		ads.take(resource.Endpoints, h.named("d1"))
		ads.quiet()
	})
}

// TestEndpointsFollowEachForm changes a cluster: the proxy requests endpoints again, by another name, and has those of the
// old form until it drops them.
// TestWhatIsNotAskedForYet checks which resources a proxy may still ask for.
func TestWhatIsNotAskedForYet(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads, asks := h.part(), h.asking()
		names := func() (out []string) {
			for _, i := range h.server.OnDemand(nodeID) {
				require.Equal(t, ledger.NotSubscribed, i.Status)
				out = append(out, i.Type.String()+" "+i.Entry.Name)
			}
			return out
		}
		require.Equal(t, []string{"CDS d1", "CDS d2", "EDS d1", "EDS d2"}, names())
		asks.subscribe(resource.Cluster, "d1")
		asks.take(resource.Cluster, "d1")
		require.Equal(t, []string{"CDS d2", "EDS d1", "EDS d2"}, names())
		ads.subscribe(resource.Endpoints, h.named("d1"))
		ads.take(resource.Endpoints, h.named("d1"))
		require.Equal(t, []string{"CDS d2", "EDS d2"}, names())

		shard := routeshard.Name(routeshard.OnDemandForm("80"), 2, 1)
		e, err := resource.Encode(resource.RouteConfig, shard, &routev3.RouteConfiguration{Name: shard})
		require.NoError(t, err)
		h.commit(table.Update{Type: resource.RouteConfig, Name: shard, Resource: e})
		require.Equal(t, []string{"RDS " + shard, "CDS d2", "EDS d2"}, names())
		require.Empty(t, h.server.OnDemand("unknown"))
	})
}

func TestEndpointsFollowEachForm(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		ads, asks := h.part(), h.asking()
		asks.subscribe(resource.Cluster, "d1")
		asks.take(resource.Cluster, "d1")
		before := h.named("d1")
		ads.subscribe(resource.Endpoints, before)
		ads.take(resource.Endpoints, before)

		h.commit(onDemand("d1", "2"))
		asks.take(resource.Cluster, "d1")
		now := h.named("d1")
		ads.subscribe(resource.Endpoints, now)
		ads.take(resource.Endpoints, before, now) // the cluster's endpoints, by both names
		h.commit(endpoints("d1", "2"))
		ads.take(resource.Endpoints, before, now)
		ads.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesUnsubscribe: []string{before}, ResourceNamesSubscribe: []string{"c1"}})
		ads.take(resource.Endpoints, "c1")
		h.commit(endpoints("d1", "3"))
		ads.take(resource.Endpoints, now)
		ads.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesUnsubscribe: []string{now}, ResourceNamesSubscribe: []string{"c1"}})
		ads.take(resource.Endpoints, "c1")
		h.commit(endpoints("d1", "4"))
		ads.quiet()
	})
}

// TestAskedNameIsNeverRemoved asks for a cluster that does not exist, then for one that is removed and returns.
func TestAskedNameIsNeverRemoved(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads, asks := h.part(), h.asking()
		asks.subscribe(resource.Cluster, "none", "d1")
		r := asks.take(resource.Cluster, "none", "d1")
		require.Nil(t, decoded(t, r, "none", &clusterv3.Cluster{}).EdsClusterConfig)
		h.commit(remove(resource.Cluster, "d1"), remove(resource.Endpoints, "d1"))
		r = asks.take(resource.Cluster, "d1")
		require.Nil(t, decoded(t, r, "d1", &clusterv3.Cluster{}).EdsClusterConfig)
		h.commit(onDemand("d1", "1"), endpoints("d1", "1"), onDemand("none", "1"))
		asks.take(resource.Cluster, "d1", "none")
		ads.quiet()
	})
}

// TestInboundClustersAreNotAsked asks for a cluster of the other table, which has what other groups may not see.
func TestInboundClustersAreNotAsked(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		h.commitTo(h.in, edsCluster("inbound", "1"))
		asks := h.asking()
		asks.subscribe(resource.Cluster, "inbound")
		r := asks.take(resource.Cluster, "inbound")
		require.Equal(t, resource.Absent, r.Resources[0].Version)
	})
}

func TestAskedClustersAfterReconnect(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		old := has(h, resource.Cluster, "d1", "d2")
		h.commit(onDemand("d2", "2"))
		old["none"], old["gone"] = resource.Absent, "1"
		asks := h.asking()
		asks.resume(resource.Cluster, old, "d1", "d2", "none", "gone")
		asks.take(resource.Cluster, "d2", "gone")
		h.commit(onDemand("none", "1"), onDemand("d1", "2"))
		asks.take(resource.Cluster, "none", "d1")
	})
}

// TestEndpointsAfterReconnect lists endpoints by two names, one of them without a version: the stream broke before the
// endpoints of the newest form came.
func TestEndpointsAfterReconnect(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		before := h.named("d1")
		h.commit(onDemand("d1", "2"))
		now, two := h.named("d1"), h.named("d2")
		version := func(cluster string) string { return h.out.State().Get(resource.Endpoints, cluster).Version }
		c := h.connect("").capable()
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1"))
		c.resume(resource.Endpoints, map[string]string{"c1": version("c1"), before: version("d1"), two: version("d2")}, "c1", before, now, two)
		c.take(resource.Endpoints, before, now)
		h.commit(endpoints("d2", "2"))
		c.take(resource.Endpoints, two)
	})
}

// aliases returns n names by which forms of a cluster on demand request endpoints.
func aliases(cluster string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s#%016xo", cluster, i))
	}
	return out
}

// storedNames returns the aliases that a harness's only stream stores, and how many it counts.
func (h *harness) storedNames(cluster string) (stored []string, counted int) {
	st := h.server.streams.all()[0]
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.names == nil {
		return nil, 0
	}
	return slices.Clone(st.names.of(cluster)), st.names.aliases
}

// TestManyAliases requests the endpoints of one cluster by many names: the stream stores and answers few, the newest.
func TestManyAliases(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads := h.part()
		many := aliases("d1", 10_000)
		kept := many[len(many)-maxEndpointNames:]
		ads.subscribe(resource.Endpoints, many...)
		ads.take(resource.Endpoints, append(slices.Clone(kept), h.named("d1"))...)
		stored, counted := h.storedNames("d1")
		require.Equal(t, kept, stored)
		require.Equal(t, maxEndpointNames, counted)
		h.commit(endpoints("d1", "2"))
		ads.take(resource.Endpoints, append(slices.Clone(kept), h.named("d1"))...)

		// To drop a name that is not stored changes nothing. Without the last, the proxy gets no endpoints.
		ads.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesUnsubscribe: many[:len(many)-1], ResourceNamesSubscribe: []string{"c1"}})
		ads.take(resource.Endpoints, "c1")
		h.commit(endpoints("d1", "3"))
		ads.take(resource.Endpoints, kept[maxEndpointNames-1], h.named("d1"))
		ads.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesUnsubscribe: kept[maxEndpointNames-1:]})
		ads.quiet()
		h.commit(endpoints("d1", "4"))
		ads.quiet()
		stored, counted = h.storedNames("d1")
		require.Empty(t, stored)
		require.Zero(t, counted)
	})
}

// TestAliasesCountAsSubscriptions: they count in one request before they are stored, and with the subscriptions after it.
func TestAliasesCountAsSubscriptions(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads := h.part()
		ads.subscribe(resource.Endpoints, aliases("d1", 1<<16+1)...)
		err := ads.end()
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.ErrorContains(t, err, "subscriptions of one request: 65537 names")

		ads = h.part()
		var list []string
		for i := range 1 << 14 {
			list = append(list, aliases(fmt.Sprint("c-", i), maxEndpointNames)...)
		}
		ads.subscribe(resource.Endpoints, list...) // 65,536 names of 16,384 clusters
		err = ads.end()
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.ErrorContains(t, err, "subscriptions: 81921 names") // and c1
	})
}

// TestNoAliasesOfOldEnvoys connects a proxy that cannot ask, and lists names as if it could. Such names are unknown, and
// the current ones arrive.
func TestNoAliasesOfOldEnvoys(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.commit(edsCluster("d1", "1"), endpoints("d1", "1"), listener("l1", "1"))
		c, old := h.connect("").capable(), aliases("d1", 2)
		c.node.UserAgentVersionType = nil
		c.resume(resource.Cluster, map[string]string{"d1": "0123456789abcdefo"})
		c.take(resource.Cluster, "d1")
		c.resume(resource.Endpoints, map[string]string{old[0]: h.out.State().Get(resource.Endpoints, "d1").Version}, old...)
		c.subscribe(resource.Listener)
		c.subscribe(resource.Endpoints, "d1")
		require.Equal(t, map[string]bool{"d1": true, "l1": true, "-" + old[0]: true, "-" + old[1]: true}, c.takeAll(4))
		stored, _ := h.storedNames("d1")
		require.Empty(t, stored)
		h.commit(endpoints("d1", "2"))
		c.take(resource.Endpoints, "d1")
	})
}

// TestAliasesWithoutClustersOnDemand is the same with an Envoy that can ask: it may have clusters of another control plane,
// whose endpoints it must not lose.
func TestAliasesWithoutClustersOnDemand(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.commit(edsCluster("d1", "1"), endpoints("d1", "1"), listener("l1", "1"))
		c, old := h.connect("").capable(), aliases("d1", 2)
		c.resume(resource.Cluster, map[string]string{"d1": "0123456789abcdefo"})
		c.take(resource.Cluster, "d1")
		c.resume(resource.Endpoints, map[string]string{old[0]: h.out.State().Get(resource.Endpoints, "d1").Version}, old...)
		c.subscribe(resource.Listener)
		require.Equal(t, map[string]bool{"d1": true, "l1": true, old[0]: true, old[1]: true}, c.takeAll(4))
		h.commit(endpoints("d1", "2"))
		c.take(resource.Endpoints, "d1", old[0], old[1])
	})
}

// takeAll takes responses until they have n names.
func (c *client) takeAll(n int) map[string]bool {
	c.t.Helper()
	got := map[string]bool{}
	for len(got) < n {
		select {
		case r := <-c.got:
			for _, name := range listed(r) {
				got[name] = true
			}
			c.ack(r)
		case <-time.After(testTimeout):
			c.t.Fatalf("only %v", got)
		}
	}
	return got
}

// otherDecisions runs a test with two control planes that serve the same: one sends all clusters, the other has d1 and d2
// on demand.
func otherDecisions(t *testing.T, test func(t *testing.T, full, part *harness)) {
	overEach(t, func(t *testing.T, on Transport) {
		full := newHarness(t, on, Options{})
		full.commit(edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"),
			notOnDemand("d1", "1"), endpoints("d1", "1"), notOnDemand("d2", "1"), endpoints("d2", "1"))
		test(t, full, onDemandHarness(t, on))
	})
}

// requested returns the name by which the cluster of a response requests its endpoints.
func requested(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse, cluster string) string {
	return decoded(t, r, cluster, &clusterv3.Cluster{}).EdsClusterConfig.ServiceName
}

// TestEverythingFromFullAndAskedOnDemand has the stream of everything lead to a control plane that sends all clusters, and
// the other stream to one that has clusters on demand. A change of a cluster comes on both, on the latter last.
func TestEverythingFromFullAndAskedOnDemand(t *testing.T) {
	otherDecisions(t, func(t *testing.T, full, part *harness) {
		ads, asks := full.connect("").capable(), part.asking()
		ads.subscribe(resource.Cluster)
		ads.take(resource.Cluster, "c1", "d1", "d2")
		ads.subscribe(resource.Endpoints, "c1", "d1", "d2")
		ads.take(resource.Endpoints, "c1", "d1", "d2")
		asks.subscribe(resource.Cluster, "d1")
		asks.take(resource.Cluster, "d1")

		full.commit(notOnDemand("d1", "2"))
		changed := ads.expect(resource.Cluster, "d1")
		ads.take(resource.Endpoints, "d1")
		ads.ack(changed)
		part.commit(onDemand("d1", "2"))
		now := requested(t, asks.take(resource.Cluster, "d1"), "d1")
		require.Equal(t, part.named("d1"), now)
		ads.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResourceNamesSubscribe: []string{now}, ResourceNamesUnsubscribe: []string{"d1"}})
		r := ads.take(resource.Endpoints, now, "d1")
		require.Len(t, decoded(t, r, now, &endpointv3.ClusterLoadAssignment{}).Endpoints, 1)
		full.commit(endpoints("d1", "2"))
		ads.take(resource.Endpoints, now, "d1")
	})
}

// TestEverythingOnDemandAndAskedFromFull is the reverse. Each form of a cluster must request its endpoints by another name,
// as Envoy does not request again what it is subscribed to.
func TestEverythingOnDemandAndAskedFromFull(t *testing.T) {
	otherDecisions(t, func(t *testing.T, full, part *harness) {
		ads, asks := part.part(), full.asking()
		asks.subscribe(resource.Cluster, "d1")
		r := asks.take(resource.Cluster, "d1")
		before := requested(t, r, "d1")
		require.Equal(t, part.named("d1"), before, "equal content has the same form from both")
		require.Equal(t, part.out.State().Get(resource.Cluster, "d1").Version, r.Resources[0].Version)
		ads.subscribe(resource.Endpoints, before)
		ads.take(resource.Endpoints, before)

		full.commit(notOnDemand("d1", "2"))
		now := requested(t, asks.take(resource.Cluster, "d1"), "d1")
		require.NotEqual(t, before, now)
		ads.subscribe(resource.Endpoints, now)
		ads.take(resource.Endpoints, before, now)
		part.commit(onDemand("d1", "2"))
		part.commit(endpoints("d1", "2"))
		ads.take(resource.Endpoints, before, now)
	})
}

// TestAskedClustersFromFullAfterReconnect lists clusters in the form in which a proxy gets them that asks, and in the form
// without a version in the name of their endpoints, which must be replaced.
func TestAskedClustersFromFullAfterReconnect(t *testing.T) {
	otherDecisions(t, func(t *testing.T, full, part *harness) {
		version := func(h *harness, cluster string) string { return h.out.State().Get(resource.Cluster, cluster).Version }
		asks := full.asking()
		asks.resume(resource.Cluster, map[string]string{"d1": version(part, "d1"), "d2": version(full, "d2")}, "d1", "d2")
		require.Equal(t, part.named("d2"), requested(t, asks.take(resource.Cluster, "d2"), "d2"))
		full.commit(notOnDemand("d1", "2"))
		asks.take(resource.Cluster, "d1")
	})
}

// TestClustersOnDemandAreCarried reconnects a proxy that has a cluster on demand on its stream of everything, as after its
// namespace changed from full to on demand.
func TestClustersOnDemandAreCarried(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		c := h.connect("").capable()
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1", "d1"))
		c.resume(resource.Endpoints, has(h, resource.Endpoints, "c1"), "c1")
		c.resume(resource.Listener, has(h, resource.Listener, "l1"))
		c.subscribe(resource.RouteConfig)
		c.subscribe(resource.VirtualHost)
		c.quiet()
		h.commit(onDemand("d1", "2"), onDemand("d2", "2"), onDemand("d3", "1"))
		// Endpoints come ahead of the subscription, which Envoy sends before it ACKs the cluster.
		clusters := c.expect(resource.Cluster, "d1")
		c.take(resource.Endpoints, h.named("d1"))
		c.ack(clusters)
		h.commit(remove(resource.Cluster, "d1"), remove(resource.Cluster, "d2"))
		c.take(resource.Cluster, "-d1")
	})
}

// TestClusterBecomesOnDemand changes a cluster that every proxy has into one on demand. Envoy does not ask for what it has, so
// the stream that sent the cluster keeps it, through further changes and its removal. A proxy that connects later asks for it.
func TestClusterBecomesOnDemand(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads := h.part()
		rev := h.commit(onDemand("c1", "2"))
		r := ads.expect(resource.Cluster, "c1")
		require.Equal(t, distribution.StateBehind, h.at(rev, "app-1").Position)
		ads.take(resource.Endpoints, h.named("c1"))
		ads.ack(r)
		h.becomes(rev, "app-1", distribution.StateACKed)
		h.eventually("the change is settled", func() bool {
			return maps.Equal(h.observer.outcomes(rev), map[distribution.Outcome]int{distribution.ACKed: 1})
		})

		later := h.connectAs(nodeOf("app-2"), "").capable()
		later.subscribe(resource.Cluster)
		later.take(resource.Cluster)

		h.commit(onDemand("c1", "3"))
		r = ads.expect(resource.Cluster, "c1")
		ads.take(resource.Endpoints, h.named("c1"))
		ads.ack(r)
		h.commit(remove(resource.Cluster, "c1"))
		ads.take(resource.Cluster, "-c1")
	})
}

// TestClusterBecomesOnDemandUnseen changes clusters twice while a response is unanswered: the stream sees only the last forms.
func TestClusterBecomesOnDemandUnseen(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		h.commit(edsCluster("c2", "1"), edsCluster("c3", "1"))
		ads := h.connect("").capable()
		ads.subscribe(resource.Cluster)
		ads.take(resource.Cluster, "c1", "c2", "c3")
		h.commit(edsCluster("c4", "1"))
		r := ads.expect(resource.Cluster, "c4")
		h.commit(onDemand("c1", "2"), onDemand("c2", "2"), remove(resource.Cluster, "c3"))
		h.commit(onDemand("c1", "3"), remove(resource.Cluster, "c2"), onDemand("c3", "2"))
		ads.ack(r)
		ads.take(resource.Cluster, "c1", "-c2", "c3")
		h.commit(onDemand("c1", "4"), remove(resource.Cluster, "c3"))
		ads.take(resource.Cluster, "c1", "-c3")
	})
}

// TestProxyChangesDelivery moves a connected proxy to full configuration and back.
func TestProxyChangesDelivery(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		ads := h.part()
		full := table.New("full")
		h.commitTo(full, edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"), edsCluster("d1", "1"), endpoints("d1", "1"))
		h.rebinds[nodeID]([]*table.Table{full, h.in})
		ads.expect(resource.Cluster, "d1")
	})
}

// TestChangeConcernsWhoHoldsIt changes a cluster on demand.
func TestChangeConcernsWhoHoldsIt(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		h.part()
		rev := h.commit(onDemand("d1", "2"))
		position := func(rev model.Revision) distribution.SyncState {
			all := h.server.Distribution(&distribution.Query{Revision: rev})
			require.Len(t, all, 1)
			return all[0].Position
		}
		h.eventually("the proxy is not concerned", func() bool { return position(rev) == distribution.StateNotConcerned })
		asks := h.asking()
		asks.subscribe(resource.Cluster, "d1")
		asks.take(resource.Cluster, "d1")
		rev = h.commit(onDemand("d1", "3"))
		r := asks.expect(resource.Cluster, "d1")
		require.Equal(t, distribution.StateBehind, position(rev))
		asks.ack(r)
		h.eventually("the proxy has it", func() bool { return position(rev) == distribution.StateACKed })
	})
}

// TestChangeCountsOnce changes what both streams of a proxy have: it counts once, when both have answered.
func TestChangeCountsOnce(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		ads, asks := h.part(), h.asking()
		asks.subscribe(resource.Cluster, "d1")
		asks.take(resource.Cluster, "d1")
		var rev model.Revision
		once := func(o distribution.Outcome) bool {
			return maps.Equal(h.observer.outcomes(rev), map[distribution.Outcome]int{o: 1})
		}
		rev = h.commit(onDemand("d1", "2"), listener("l1", "2"))
		ads.take(resource.Listener, "l1")
		r := asks.expect(resource.Cluster, "d1")
		ads.quiet() // its answers are processed
		require.Empty(t, h.observer.outcomes(rev))
		asks.nack(r, "d1: no")
		h.eventually("the change is settled", func() bool {
			return once(distribution.NACKed)
		})

		rev = h.commit(onDemand("d1", "3"))
		asks.take(resource.Cluster, "d1")
		h.eventually("the change is settled", func() bool {
			return once(distribution.ACKed)
		})
		rev = h.commit(onDemand("d2", "3"))
		h.eventually("the change is settled", func() bool {
			return once(distribution.NotConcerned)
		})
		rev = h.commit(onDemand("d1", "4"))
		asks.cancel() // nobody waits for it any more
		h.eventually("the change is settled", func() bool { return len(h.observer.outcomes(rev)) == 1 })
	})
}

// TestProxiesWithOneID connects two proxies with one node ID, each with two streams. The first one's stream for clusters ends
// while a change is unanswered. The other streams still settle.
func TestProxiesWithOneID(t *testing.T) {
	onDemandTest(t, func(_ *testing.T, h *harness) {
		h.part()
		firstAsks := h.asking()
		firstAsks.subscribe(resource.Cluster, "d1")
		firstAsks.take(resource.Cluster, "d1")
		h.part()
		secondAsks := h.asking()
		secondAsks.subscribe(resource.Cluster, "d2")
		secondAsks.take(resource.Cluster, "d2")

		rev := h.commit(onDemand("d1", "2"))
		firstAsks.expect(resource.Cluster, "d1")
		firstAsks.cancel()
		h.eventually("both proxies have settled", func() bool {
			settled := 0
			for _, n := range h.observer.outcomes(rev) {
				settled += n
			}
			return settled == 2
		})
	})
}

// TestOldStreamSettlesToo connects the stream of everything again before the old one has ended. A change that concerns the
// stream for clusters counts for the old one, which settles with the answer.
func TestOldStreamSettlesToo(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		h.part()
		asks := h.asking()
		asks.subscribe(resource.Cluster, "d1")
		asks.take(resource.Cluster, "d1")
		rev := h.commit(onDemand("d1", "2"))
		r := asks.expect(resource.Cluster, "d1")
		h.part()
		require.Empty(t, h.observer.outcomes(rev))
		asks.ack(r)
		h.eventually("the old stream has settled", func() bool { return h.observer.outcomes(rev)[distribution.ACKed] == 1 })
		rev = h.commit(onDemand("d1", "3"))
		asks.take(resource.Cluster, "d1")
		h.eventually("both streams have settled", func() bool { return h.observer.outcomes(rev)[distribution.ACKed] == 2 })
	})
}

// TestRefusedClusterIsReplaced refuses a cluster of which the proxy has no form: requests must not wait for it. A cluster
// that the proxy has in an older form stays.
func TestRefusedClusterIsReplaced(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		asks := h.asking()
		asks.subscribe(resource.Cluster, "d1")
		asks.nack(asks.expect(resource.Cluster, "d1"), "d1: no")
		r := asks.take(resource.Cluster, "d1")
		require.Equal(t, resource.Absent, r.Resources[0].Version)
		asks.subscribe(resource.Cluster, "d2")
		asks.take(resource.Cluster, "d2")
		h.commit(onDemand("d2", "2"))
		asks.nack(asks.expect(resource.Cluster, "d2"), "d2: no")
		h.commit(onDemand("d1", "2"), onDemand("d2", "3"))
		r = asks.take(resource.Cluster, "d1", "d2")
		require.True(t, resource.IsOnDemand(r.Resources[0].Version) && resource.IsOnDemand(r.Resources[1].Version))
	})
}

func TestOldEnvoyCannotAsk(t *testing.T) {
	onDemandTest(t, func(t *testing.T, h *harness) {
		asks := h.asking()
		asks.node.UserAgentVersionType = nil
		asks.subscribe(resource.Cluster, "d1")
		require.Equal(t, codes.Unimplemented, status.Code(<-asks.ended))
	})
}

// learned remembers what a test says, and what proxies ask for.
type learned struct {
	known        Known
	mu           sync.Mutex // guards fresh and again
	fresh, again []string
}

func (l *learned) Asked(_ *model.Proxy, clusters []string, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if again {
		l.again = append(l.again, clusters...)
	} else {
		l.fresh = append(l.fresh, clusters...)
	}
}

func (l *learned) Known(context.Context, *model.Proxy) Known { return l.known }

func (l *learned) asked() (fresh, again []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.fresh), slices.Clone(l.again)
}

// TestKnownClustersComeFirst starts a proxy whose workload is known to use clusters by name and by host. Those that do not
// exist, are not on demand, or are in the other table are left out.
func TestKnownClustersComeFirst(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		of := &learned{known: Known{
			Clusters: []string{"d1", "gone", "c1", "inbound", "outbound|80||deleted.shop.svc.cluster.local"},
			Hosts:    []model.Host{"a.shop.svc.cluster.local", "renamed.shop.svc.cluster.local"},
		}}
		h := newHarness(t, on, Options{Learned: of})
		h.out = table.NewOnDemand("out", nil)
		first, subset := "outbound|80||a.shop.svc.cluster.local", "outbound|8080|v1|a.shop.svc.cluster.local"
		h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), onDemand("d1", "1"), endpoints("d1", "1"), onDemand("d2", "1"), endpoints("d2", "1"),
			onDemand(first, "1"), endpoints(first, "1"), onDemand(subset, "1"), endpoints(subset, "1"))
		h.commitTo(h.in, onDemand("inbound", "1"))
		c := h.connect("").capable()
		c.subscribe(resource.Cluster)
		c.take(resource.Cluster, "c1", "d1", first, subset)
		named := h.named("d1")
		c.subscribe(resource.Endpoints, "c1", named)
		c.take(resource.Endpoints, "c1", named)
		h.commit(endpoints("d1", "2"), onDemand("d2", "2"))
		c.take(resource.Endpoints, named)

		h.commit(remove(resource.Cluster, "d1"), remove(resource.Endpoints, "d1"))
		c.take(resource.Cluster, "-d1")
		c.take(resource.Endpoints, "-"+named, "-d1")
		c.quiet()
	})
}

// TestKnownClustersDoNotFollowAReconnect connects a proxy again: it has what it asked for on its other stream.
func TestKnownClustersDoNotFollowAReconnect(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{Learned: &learned{known: Known{Clusters: []string{"d1"}}}})
		h.out = table.NewOnDemand("out", nil)
		h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), onDemand("d1", "1"), endpoints("d1", "1"))
		c := h.connect("").capable()
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1"))
		h.commit(edsCluster("c1", "2"))
		c.take(resource.Cluster, "c1")
	})
}

// TestAskedClustersAreLearned asks for a cluster, for one that does not exist, and for others after a reconnect.
func TestAskedClustersAreLearned(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		of := &learned{}
		h := newHarness(t, on, Options{Learned: of})
		h.out = table.NewOnDemand("out", nil)
		h.commit(onDemand("d1", "1"), onDemand("d2", "1"), edsCluster("c1", "1"))
		asks := h.asking()
		asks.subscribe(resource.Cluster, "d1", "none", "c1")
		asks.take(resource.Cluster, "d1", "none", "c1")
		asks.subscribe(resource.Cluster, "d2")
		asks.take(resource.Cluster, "d2")
		fresh, again := of.asked()
		require.Equal(t, []string{"d1", "d2"}, fresh)
		require.Empty(t, again)

		asks = h.asking()
		asks.resume(resource.Cluster, has(h, resource.Cluster, "d1"), "d1", "d2")
		asks.take(resource.Cluster, "d2")
		fresh, again = of.asked()
		require.Equal(t, []string{"d1", "d2", "d2"}, fresh)
		require.Equal(t, []string{"d1"}, again)
	})
}

// TestRefusedRequestsAreNotLearned subscribes to too many clusters, and to names of a type that the stream does not serve.
func TestRefusedRequestsAreNotLearned(t *testing.T) {
	many := make([]string, 1<<16+1)
	for i := range many {
		many[i] = fmt.Sprint("d", i)
	}
	overEach(t, func(t *testing.T, on Transport) {
		of := &learned{}
		h := newHarness(t, on, Options{Learned: of})
		h.out = table.NewOnDemand("out", nil)
		h.commit(onDemand("d1", "1"))
		asks := h.asking()
		asks.subscribe(resource.Endpoints, "d1")
		asks.subscribe(resource.Cluster, many...)
		require.Equal(t, codes.ResourceExhausted, status.Code(asks.end()))
		fresh, again := of.asked()
		require.Empty(t, fresh)
		require.Empty(t, again)
	})
}

// TestLongListsAreLearned: a request subscribes to many clusters and lists many. A search of one list for each name of the
// other would hold the stream's lock for many seconds.
func TestLongListsAreLearned(t *testing.T) {
	const n = 1 << 15
	of, tab := &learned{}, table.NewOnDemand("out", nil)
	r := &ledger.Request{}
	var updates []table.Update
	shared := onDemand("d", "1").Resource
	for i := range n {
		name := fmt.Sprint("d", i)
		updates = append(updates, table.Update{Type: resource.Cluster, Name: name, Resource: shared})
		r.Subscribe = append(r.Subscribe, []byte(name))
		r.Initial = append(r.Initial, ledger.NameVersion{Name: fmt.Append(nil, "x", i)})
	}
	tab.Commit(1, updates)
	st := &stream{server: &Server{opts: Options{Learned: of}}, asked: true, tables: []*table.Table{tab}}
	st.learn(r)
	fresh, _ := of.asked()
	require.Len(t, fresh, n)
}

// TestKnownServicesHaveWarmRoutes sends the scopes of shards of known services without on_demand, and others with it.
func TestKnownServicesHaveWarmRoutes(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		const bits, host = 2, "a.shop.svc.cluster.local"
		known := Known{Clusters: []string{"outbound|80||" + host}}
		h := newHarness(t, on, Options{RouteStrategy: RoutesScoped, Learned: &learned{known: known}})
		h.out = table.NewOnDemand("out", nil)
		updates, all := []table.Update{edsCluster("c1", "1"), endpoints("c1", "1")}, []string{}
		for _, rc := range []string{"80", "8080"} {
			for k := range routeshard.Count(bits) {
				name := routeshard.Name(routeshard.OnDemandForm(rc), bits, k)
				e, err := resource.Encode(resource.Scope, name, &routev3.ScopedRouteConfiguration{Name: name, OnDemand: true})
				require.NoError(t, err)
				updates, all = append(updates, table.Update{Type: resource.Scope, Name: name, Resource: e}), append(all, name)
			}
		}
		h.commit(updates...)
		c := h.connect("").capable()
		c.subscribe(resource.Cluster)
		c.take(resource.Cluster, "c1")
		c.subscribe(resource.Endpoints, "c1")
		c.take(resource.Endpoints, "c1")
		c.subscribe(resource.Scope)
		r := c.take(resource.Scope, all...)
		for _, name := range all {
			warm := name == routeshard.Name(routeshard.OnDemandForm("80"), bits, routeshard.Of(host, bits))
			require.Equal(t, !warm, decoded(t, r, name, &routev3.ScopedRouteConfiguration{}).OnDemand, name)
		}
	})
}
