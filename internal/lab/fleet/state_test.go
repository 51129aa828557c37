package fleet

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// sidecar is a state with the catalog that it needs.
type sidecar struct {
	t *testing.T
	c *Catalog
	s state
}

func newSidecar(t *testing.T) *sidecar {
	p := &sidecar{t: t, c: NewCatalog()}
	require.Equal(t, []string{"CDS"}, p.decode(p.s.reconnect(p.c)))
	return p
}

// take applies resources, and removals where the message is nil. It returns the requests that follow, as "EDS +a -b",
// with resources that the proxy lists as held as "=a@1".
func (p *sidecar) take(k Kind, version string, resources map[string]proto.Message) []string {
	var in []received
	for name, m := range resources {
		r := received{name: []byte(name), version: []byte(version), removed: m == nil}
		if m != nil {
			value, err := anypb.New(m)
			require.NoError(p.t, err)
			r.any, err = proto.Marshal(value)
			require.NoError(p.t, err)
		}
		in = append(in, r)
	}
	list, _ := p.c.resolve(k, in, nil)
	return p.decode(p.s.apply(p.c, k, list, nil))
}

func (p *sidecar) decode(requests []request) (out []string) {
	for _, r := range requests {
		var m discoveryv3.DeltaDiscoveryRequest
		require.NoError(p.t, proto.Unmarshal(r, &m))
		k, ok := kindOf([]byte(m.TypeUrl))
		require.True(p.t, ok)
		text := k.String()
		for _, n := range m.ResourceNamesSubscribe {
			text += " +" + n
		}
		for _, n := range m.ResourceNamesUnsubscribe {
			text += " -" + n
		}
		for n, v := range m.InitialResourceVersions {
			text += " =" + n + "@" + v
		}
		out = append(out, text)
	}
	return out
}

func edsCluster(service string) proto.Message {
	c := &clusterv3.Cluster{ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	if c.Name = "c"; service != "" {
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: service}
	}
	return c
}

func listener(t *testing.T, routes string) proto.Message {
	return managed(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: routes}}})
}

func managed(t *testing.T, m *hcmv3.HttpConnectionManager) proto.Message {
	h, err := anypb.New(m)
	require.NoError(t, err)
	return &listenerv3.Listener{DefaultFilterChain: &listenerv3.FilterChain{Filters: []*listenerv3.Filter{
		{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: h}},
	}}}
}

type resources = map[string]proto.Message

var (
	endpoints = &endpointv3.ClusterLoadAssignment{}
	shell     = &routev3.RouteConfiguration{Vhds: &routev3.Vhds{}}
	host      = &routev3.VirtualHost{}
)

// configured takes a sidecar through its start in the order of Envoy.
func configured(t *testing.T) *sidecar {
	p := newSidecar(t)
	require.Equal(t, []string{"EDS +e"}, p.take(CDS, "1", resources{"c": edsCluster("e"), "static": &clusterv3.Cluster{}}))
	require.Equal(t, []string{"LDS"}, p.take(EDS, "1", resources{"e": endpoints}), "listeners once the clusters are warm")
	require.Equal(t, []string{"RDS +80"}, p.take(LDS, "1", resources{"l": listener(t, "80")}))
	require.False(t, p.s.ready)
	require.Equal(t, []string{"VHDS"}, p.take(RDS, "1", resources{"80": shell}))
	require.False(t, p.s.ready, "the virtual hosts have not come")
	require.Empty(t, p.take(VHDS, "1", resources{"80/a": host}))
	require.True(t, p.s.ready)
	return p
}

func TestClusters(t *testing.T) {
	p := configured(t)
	require.Empty(t, p.take(CDS, "2", resources{"c": edsCluster("e")}), "a changed cluster's endpoints are subscribed already")
	require.Equal(t, []string{"EDS +c -e"}, p.take(CDS, "3", resources{"c": edsCluster("")}))
	require.False(t, p.s.ready)
	require.Empty(t, p.take(EDS, "1", resources{"c": endpoints, "other": endpoints}))
	require.True(t, p.s.ready)
	require.Equal(t, none, p.s.get(EDS, p.c.names[EDS]["other"].id), "endpoints without a subscription are ignored")
	require.Equal(t, []string{"EDS -c"}, p.take(CDS, "", resources{"c": nil}))
}

func TestRoutes(t *testing.T) {
	p := configured(t)
	require.Equal(t, []string{"RDS +90 -80"}, p.take(LDS, "2", resources{"l": listener(t, "90")}))
	require.Equal(t, none, p.s.get(VHDS, p.c.names[VHDS]["80/a"].id), "they go with their route configuration")
	require.Empty(t, p.take(RDS, "1", resources{"90": shell}), "virtual hosts are asked for once a stream")
	require.False(t, p.s.ready)
	require.Empty(t, p.take(VHDS, "", resources{"90/none": nil}), "there are none")
	require.True(t, p.s.ready)
	require.Empty(t, p.take(VHDS, "1", resources{"80/b": host}))
	require.Equal(t, none, p.s.get(VHDS, p.c.names[VHDS]["80/b"].id), "Envoy drops those of routes that it has not")
}

// TestScopes checks that scopes are subscribed to as a whole, and the route configurations that they name all at once.
func TestScopes(t *testing.T) {
	p := newSidecar(t)
	p.take(CDS, "1", resources{"c": edsCluster("e")})
	p.take(EDS, "1", resources{"e": endpoints})
	h := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{}},
	}}}
	require.Equal(t, []string{"SRDS"}, p.take(LDS, "1", resources{"scopes": managed(t, h), "l": listener(t, "90")}))
	require.False(t, p.s.ready, "the scopes have not come")
	require.Equal(t, []string{"RDS +80~16~0 +80~16~1 +90"}, p.take(SRDS, "1", resources{"0": scope("80~16~0"), "1": scope("80~16~1")}))
	require.Equal(t, []string{"VHDS"}, p.take(RDS, "1", resources{"80~16~0": shell, "80~16~1": shell, "90": shell}))
	require.Empty(t, p.take(VHDS, "1", resources{"80~16~0/a": host, "90/b": host}))
	require.False(t, p.s.ready)
	require.Empty(t, p.take(VHDS, "", resources{"80~16~1/none": nil}))
	require.True(t, p.s.ready)

	require.Equal(t, []string{"RDS +80~64~0 -80~16~0"}, p.take(SRDS, "2", resources{"0": scope("80~64~0")}))
	require.False(t, p.s.ready)
	p.take(RDS, "1", resources{"80~64~0": shell})
	p.take(VHDS, "1", resources{"80~64~0/a": host})
	require.True(t, p.s.ready)
	require.Equal(t, none, p.s.get(VHDS, p.c.names[VHDS]["80~16~0/a"].id), "they go with their scope")
	require.Equal(t, []string{"RDS -80~16~1"}, p.take(SRDS, "", resources{"1": nil}))
	require.Contains(t, p.decode(p.s.reconnect(p.c)), "SRDS =0@2")

	p = newSidecar(t)
	p.take(CDS, "1", resources{})
	require.Equal(t, []string{"SRDS"}, p.take(LDS, "1", resources{"scopes": managed(t, h)}))
	require.Empty(t, p.take(SRDS, "", resources{}))
	require.True(t, p.s.ready, "there are none")
	require.Contains(t, p.decode(p.s.reconnect(p.c)), "SRDS", "they are asked for all the same")
}

func scope(routes string) proto.Message {
	return &routev3.ScopedRouteConfiguration{RouteConfigurationName: routes}
}

// TestHashIsVersionIfNoneIsSent checks that a resource without a version, as istiod sends it, is identified by its
// content.
func TestHashIsVersionIfNoneIsSent(t *testing.T) {
	p := newSidecar(t)
	send := func(cluster string) held {
		p.take(CDS, "", map[string]proto.Message{"a": &clusterv3.Cluster{Name: cluster}})
		return p.s.get(CDS, 0)
	}
	first := send("a")
	require.True(t, first.has())
	require.NotEqual(t, first, send("b"))
	require.Equal(t, first, send("a"))
}

func TestNamesThatDoNotExist(t *testing.T) {
	p := newSidecar(t)
	p.take(CDS, "1", resources{"c": edsCluster("e")})
	require.Equal(t, []string{"LDS"}, p.take(EDS, "", resources{"e": nil}))
	require.Equal(t, absent, p.s.get(EDS, p.c.names[EDS]["e"].id))
	require.Empty(t, p.take(EDS, "1", resources{"e": endpoints}), "it is subscribed still")
	require.True(t, p.s.get(EDS, p.c.names[EDS]["e"].id).has())
}

func TestReconnect(t *testing.T) {
	p := configured(t)
	p.take(CDS, "2", resources{"static": nil})
	require.Equal(t, []string{"CDS =c@1", "EDS +e =e@1", "LDS =l@1", "RDS +80 =80@1", "VHDS =80/a@1", "EDS +" + Probe}, p.decode(p.s.reconnect(p.c)))
	require.False(t, p.s.ready)
	require.Empty(t, p.take(EDS, "", resources{Probe: nil}))
	require.True(t, p.s.ready)
	require.Empty(t, p.take(RDS, "2", resources{"80": shell}), "it has asked for virtual hosts")

	p = newSidecar(t)
	p.take(CDS, "1", resources{"c": edsCluster("e")})
	require.Equal(t, []string{"CDS"}, p.decode(p.s.reconnect(p.c)), "one that was not configured begins anew")
	require.Equal(t, none, p.s.get(CDS, p.c.names[CDS]["c"].id))
}

func TestBare(t *testing.T) {
	p := configured(t)
	p.s.forget()
	require.Equal(t, []string{"EDS +" + Probe}, p.decode(p.s.reconnect(p.c)))
	require.False(t, p.s.ready)
	require.Empty(t, p.take(EDS, "", resources{Probe: nil}))
	require.True(t, p.s.ready)
	require.Equal(t, none, p.s.get(CDS, p.c.names[CDS]["c"].id))
}

// A round ends at a proxy when it has all expected resources, in any order, and only in accepted versions.
func TestRound(t *testing.T) {
	f := NewFleet(NewCatalog(), Options{}, make([]Identity, 3))
	c := f.Catalog
	resource := func(name, version, value string) []received {
		return []received{{name: []byte(name), version: []byte(version), any: []byte(value)}}
	}
	c.resolve(CDS, resource("c", "old", "x"), nil)
	round := f.Expect([]bool{true, true, false},
		Want{Kind: CDS, Name: "c", Accept: func(b []byte) bool { return string(b) == "good" }},
		Want{Kind: VHDS, Name: "80/a", Gone: true},
		Want{Kind: RDS, Name: "80", Alternative: true})
	require.Equal(t, 2, round.goals)
	var g goals
	g.begin(round)
	see := func(k Kind, in []received) bool {
		list, now := c.resolve(k, in, nil)
		require.Same(t, round, now)
		g.reach(list[0].goal)
		return g.all()
	}
	require.False(t, see(RDS, resource("80", "1", "any")))
	require.False(t, see(VHDS, []received{{name: []byte("80/a"), removed: true}}), "the same goal")
	require.False(t, see(CDS, resource("c", "old", "x")), "it was there before")
	require.False(t, see(CDS, resource("c", "bad", "bad")))
	require.True(t, see(CDS, resource("c", "new", "good")))

	round.Record(2)
	round.Record(0)
	round.Record(0)
	require.Equal(t, 1, round.Left(), "only concerned proxies count, each once")
	round.Record(1)
	<-round.Done()
	require.Len(t, round.Latencies(), 2)
	f.Forget()
	_, now := c.resolve(CDS, resource("c", "new", "good"), nil)
	require.Nil(t, now)
}
