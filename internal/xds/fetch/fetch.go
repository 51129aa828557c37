// Package fetch reads all resources of a proxy from a running control plane, Moonsail's or istiod, as the proxy's Envoy would:
// by the aggregated discovery service, state of the world.
//
// Start reading at Client.Proxy. The caller closes a Client.
package fetch

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const typePrefix = "type.googleapis.com/"

// The types of resources, in the order in which Envoy requests them.
const (
	clusterType   = typePrefix + "envoy.config.cluster.v3.Cluster"
	endpointType  = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType  = typePrefix + "envoy.config.listener.v3.Listener"
	routeType     = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	extensionType = typePrefix + "envoy.config.core.v3.TypedExtensionConfig"
)

// maxResponse bounds a response. Control planes of large meshes send hundreds of megabytes.
const maxResponse = 1 << 30

// answerTimeout bounds the wait for one type.
const answerTimeout = 30 * time.Second

// Options are how to reach a control plane.
type Options struct {
	Address string                                      // host:port
	Dial    func(ctx context.Context) (net.Conn, error) // nil: by Address
	TLS     *tls.Config                                 // nil: plain text
	Token   string                                      // empty: none
}

// Client reads from one control plane. It is safe for concurrent use.
type Client struct {
	conn  *grpc.ClientConn
	token string
}

// Connect returns a client. It connects with the first call.
func Connect(o Options) (*Client, error) {
	security := insecure.NewCredentials()
	if o.TLS != nil {
		security = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(security), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse))}
	if o.Dial != nil {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return o.Dial(ctx) }))
	}
	conn, err := grpc.NewClient("passthrough:///"+o.Address, options...)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, token: o.Token}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Proxy returns the resources of a proxy: clusters, endpoints, listeners, route configurations, and extension configurations.
// version is that of the clusters.
func (c *Client) Proxy(ctx context.Context, node *corev3.Node) (out []*anypb.Any, version string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, "", err
	}
	s := &conversation{stream: stream, node: node, cancel: cancel, subscribed: map[string][]string{}}
	for _, step := range []struct {
		typ   string
		names func([]*anypb.Any) ([]string, error) // to subscribe to, from what came so far; nil: all
	}{{clusterType, nil}, {endpointType, endpointNames}, {listenerType, nil}, {routeType, routeNames}, {extensionType, extensionNames}} {
		var names []string
		if step.names != nil {
			if names, err = step.names(out); err != nil {
				return nil, "", err
			}
			if len(names) == 0 {
				continue
			}
		}
		resources, err := s.get(step.typ, names)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", step.typ[len(typePrefix):], err)
		}
		out = append(out, resources...)
	}
	return out, s.version, nil
}

// conversation is one stream.
type conversation struct {
	stream     discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node       *corev3.Node // sent with the first request; nil afterwards
	cancel     context.CancelFunc
	subscribed map[string][]string // names by type
	version    string              // of the first response
}

// get subscribes to a type and returns the first response with it. Other responses are ACKed and skipped.
func (s *conversation) get(typ string, names []string) ([]*anypb.Any, error) {
	s.subscribed[typ] = names
	if err := s.stream.Send(&discoveryv3.DiscoveryRequest{Node: s.node, TypeUrl: typ, ResourceNames: names}); err != nil {
		return nil, s.sendError(err)
	}
	s.node = nil
	timer := time.AfterFunc(answerTimeout, s.cancel)
	defer timer.Stop()
	for {
		r, err := s.stream.Recv()
		if err != nil {
			if !timer.Stop() {
				return nil, fmt.Errorf("no answer after %s", answerTimeout)
			}
			return nil, err
		}
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce(), ResourceNames: s.subscribed[r.GetTypeUrl()]}
		if err := s.stream.Send(ack); err != nil {
			return nil, s.sendError(err)
		}
		if r.GetTypeUrl() == typ {
			s.version = cmp.Or(s.version, r.GetVersionInfo())
			return r.GetResources(), nil
		}
	}
}

// sendError returns why Send failed. After the end of a stream Send returns io.EOF, and Recv the status: after all responses
// that arrived before.
func (s *conversation) sendError(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := s.stream.Recv(); err != nil {
			return err
		}
	}
}

func endpointNames(all []*anypb.Any) ([]string, error) {
	return namesIn(all, &clusterv3.Cluster{}, func(c *clusterv3.Cluster) []string {
		if c.GetType() != clusterv3.Cluster_EDS {
			return nil
		}
		if n := c.GetEdsClusterConfig().GetServiceName(); n != "" {
			return []string{n}
		}
		return []string{c.GetName()}
	})
}

func routeNames(all []*anypb.Any) ([]string, error) {
	return namesIn(all, &listenerv3.Listener{}, func(l *listenerv3.Listener) (out []string) {
		eachManager(l, func(m *hcmv3.HttpConnectionManager) {
			if n := m.GetRds().GetRouteConfigName(); n != "" {
				out = append(out, n)
			}
		})
		return out
	})
}

func extensionNames(all []*anypb.Any) ([]string, error) {
	return namesIn(all, &listenerv3.Listener{}, func(l *listenerv3.Listener) (out []string) {
		for _, f := range l.GetListenerFilters() {
			if f.GetConfigDiscovery() != nil {
				out = append(out, f.GetName())
			}
		}
		eachFilter(l, func(f *listenerv3.Filter) {
			if f.GetConfigDiscovery() != nil {
				out = append(out, f.GetName())
			}
		})
		eachManager(l, func(m *hcmv3.HttpConnectionManager) {
			for _, f := range m.GetHttpFilters() {
				if f.GetConfigDiscovery() != nil {
					out = append(out, f.GetName())
				}
			}
		})
		return out
	})
}

func eachFilter(l *listenerv3.Listener, do func(*listenerv3.Filter)) {
	for _, chain := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			do(f)
		}
	}
}

func eachManager(l *listenerv3.Listener, do func(*hcmv3.HttpConnectionManager)) {
	eachFilter(l, func(f *listenerv3.Filter) {
		m := &hcmv3.HttpConnectionManager{}
		if f.GetTypedConfig().MessageIs(m) && f.GetTypedConfig().UnmarshalTo(m) == nil {
			do(m)
		}
	})
}

// namesIn returns names in the resources of one type, sorted and each once.
func namesIn[T proto.Message](all []*anypb.Any, empty T, names func(T) []string) ([]string, error) {
	var out []string
	for _, a := range all {
		if !a.MessageIs(empty) {
			continue
		}
		m, err := a.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		typed, ok := m.(T)
		if !ok {
			return nil, errors.New("unexpected type " + a.GetTypeUrl())
		}
		out = append(out, names(typed)...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
