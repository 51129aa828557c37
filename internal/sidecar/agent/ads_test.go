package agent

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// fakeADS answers wildcard subscriptions of delta ADS with fixed resources after open is closed.
type fakeADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address    string
	stop       func()
	open       chan struct{}
	resources  map[string][]*discoveryv3.Resource
	onlyPeers  string                                                                                   // prefix of accepted SPIFFE ids
	concerns   func(node, resource string) bool                                                         // nil: every resource concerns every node
	deregister func(context.Context, *agentapi.DeregisterRequest) (*agentapi.DeregisterResponse, error) // nil: the method does not exist

	mu       sync.Mutex // guards the fields below
	nodes    []*corev3.Node
	versions map[string]string // initial resource versions of all streams
}

func startADS(t *testing.T, listeners []*listenerv3.Listener, clusters []*clusterv3.Cluster, tls credentials.TransportCredentials) *fakeADS {
	t.Helper()
	f := &fakeADS{open: make(chan struct{}), resources: map[string][]*discoveryv3.Resource{}, versions: map[string]string{}}
	for _, l := range listeners {
		f.add(resource.ListenerURL, l.Name, l)
	}
	for _, c := range clusters {
		f.add(resource.ClusterURL, c.Name, c)
	}
	at := ownIP() // no other process takes the port while the server restarts
	if tls != nil {
		at = "127.0.0.1" // the address in its certificate
	}
	f.stop = f.serve(t, at+":0", tls)
	return f
}

// serve starts the server. stop, or the end of the test, ends it and its streams.
func (f *fakeADS) serve(t *testing.T, address string, tls credentials.TransportCredentials) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	f.address = l.Addr().String()
	var options []grpc.ServerOption
	if tls != nil {
		options = append(options, grpc.Creds(tls))
	}
	server := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, f)
	f.registerDeregister(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = func() { server.Stop(); <-done }
	t.Cleanup(stop)
	return stop
}

func (f *fakeADS) add(url, name string, m proto.Message) {
	f.resources[url] = append(f.resources[url], &discoveryv3.Resource{Name: name, Version: "1", Resource: pack(m)})
}

func (f *fakeADS) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if err := f.refuse(stream.Context()); err != nil {
		return err
	}
	for node := ""; ; {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		f.mu.Lock()
		if req.Node != nil {
			node = req.Node.Id
			f.nodes = append(f.nodes, req.Node)
		}
		maps.Copy(f.versions, req.InitialResourceVersions)
		f.mu.Unlock()
		if req.ResponseNonce != "" {
			continue
		}
		select {
		case <-f.open:
		case <-stream.Context().Done():
			return nil
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: req.TypeUrl, Nonce: "n", Resources: f.of(node, req.TypeUrl),
		}); err != nil {
			return nil
		}
	}
}

// of returns the resources of a type that concern a node.
func (f *fakeADS) of(node, url string) []*discoveryv3.Resource {
	return slices.DeleteFunc(slices.Clone(f.resources[url]), func(r *discoveryv3.Resource) bool {
		return f.concerns != nil && !f.concerns(node, r.Name)
	})
}

// seenNodes returns the nodes of all requests that had one.
func (f *fakeADS) seenNodes() []*corev3.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*corev3.Node(nil), f.nodes...)
}

// heldVersions returns the initial resource versions that proxies sent.
func (f *fakeADS) heldVersions() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.versions)
}

// httpRoute returns an inbound HTTP listener that forwards all requests to one address.
func httpRoute(t *testing.T, ip string, port uint16, to net.Addr) ([]*listenerv3.Listener, []*clusterv3.Cluster) {
	t.Helper()
	l, c := namedRoute("inbound", "app", ip, port, to)
	return []*listenerv3.Listener{l}, []*clusterv3.Cluster{c}
}

func namedRoute(listener, cluster, ip string, port uint16, to net.Addr) (*listenerv3.Listener, *clusterv3.Cluster) {
	target := to.(*net.TCPAddr)
	hcm := &hcmv3.HttpConnectionManager{
		StatPrefix: "inbound",
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}, Timeout: durationpb.New(0),
				}},
			}}}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
		}},
	}
	return &listenerv3.Listener{
			Name:             listener,
			Address:          socketAddress(ip, port),
			TrafficDirection: corev3.TrafficDirection_INBOUND,
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
				Name:       "envoy.filters.network.http_connection_manager",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(hcm)},
			}}}},
		}, &clusterv3.Cluster{
			Name:                 cluster,
			ConnectTimeout:       durationpb.New(patience),
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
			LoadAssignment: &endpointv3.ClusterLoadAssignment{
				ClusterName: cluster,
				Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
					HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
						Address: socketAddress(target.IP.String(), uint16(target.Port)),
					}},
				}}}},
			},
		}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func socketAddress(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}
