package cluster

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// held are the types that a simulated proxy subscribes to.
var held = []resource.Type{resource.Cluster, resource.Endpoints, resource.Listener}

// proxy is a simulated sidecar on a delta stream. It subscribes to all clusters and listeners, and the endpoints of all
// clusters.
type proxy struct {
	model  *model.Proxy
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	cut      context.CancelFunc                  // ends its stream
	mu       sync.Mutex                          // guards the fields below; while it is locked, the proxy answers nothing
	refuses  string                              // the proxy refuses responses with a resource of this name
	held     map[resource.Type]map[string]string // versions by name
	removed  map[string]bool                     // all clusters that were ever removed
	answered int
	failed   error
}

func connect(t *testing.T, addr, ns string) *proxy {
	t.Helper()
	return connectAs(t, addr, ns, "client", "10.9.9.9")
}

func connectAs(t *testing.T, addr, ns, name, ip string) *proxy {
	t.Helper()
	return connectWith(t, addr, ns, name, ip, nil)
}

// connectWith is connectAs with metadata of its node.
func connectWith(t *testing.T, addr, ns, name, ip string, metadata map[string]any) *proxy {
	t.Helper()
	fields, err := structpb.NewStruct(metadata)
	require.NoError(t, err)
	s := openStream(t, addr)
	p := &proxy{
		stream: s, cut: s.cut, held: map[resource.Type]map[string]string{}, removed: map[string]bool{},
		model: &model.Proxy{
			ID: "sidecar~" + ip + "~" + name + "." + ns + "~" + ns + ".svc.cluster.local", Type: model.ProxySidecar,
			Name: name, Namespace: ns, IPs: []string{ip}, DNSDomain: ns + ".svc.cluster.local",
		},
	}
	node := &core.Node{Id: p.model.ID, Metadata: fields}
	for _, typ := range held {
		p.held[typ] = map[string]string{}
		if typ != resource.Endpoints {
			require.NoError(t, s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL()}))
			node = nil
		}
	}
	s.reading.Go(p.read)
	return p
}

// openedStream is a delta stream to a control plane, until the test ends.
type openedStream struct {
	discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cut     context.CancelFunc
	reading sync.WaitGroup // readers; the test's end waits for them
}

func openStream(t *testing.T, addr string) *openedStream {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	out := &openedStream{AggregatedDiscoveryService_DeltaAggregatedResourcesClient: stream, cut: cancel}
	t.Cleanup(func() {
		cancel()
		out.reading.Wait()
		require.NoError(t, conn.Close())
	})
	return out
}

// read receives responses and ACKs them until the stream ends.
func (p *proxy) read() {
	for {
		resp, err := p.stream.Recv()
		if err == nil {
			err = p.answer(resp)
		}
		if err != nil {
			p.mu.Lock()
			p.failed = err
			p.mu.Unlock()
			return
		}
	}
}

func (p *proxy) answer(resp *discovery.DeltaDiscoveryResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered++
	for _, r := range resp.Resources {
		if p.refuses != "" && r.Name == p.refuses {
			return p.stream.Send(&discovery.DeltaDiscoveryRequest{
				TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce, ErrorDetail: &status.Status{Code: 13, Message: r.Name + ": not with me"},
			})
		}
	}
	for _, typ := range held {
		if typ.URL() != resp.TypeUrl {
			continue
		}
		var added []string
		for _, r := range resp.Resources {
			if p.held[typ][r.Name] == "" {
				added = append(added, r.Name)
			}
			p.held[typ][r.Name] = r.Version
		}
		for _, name := range resp.RemovedResources {
			delete(p.held[typ], name)
			if typ == resource.Cluster {
				p.removed[name] = true
				delete(p.held[resource.Endpoints], name)
			}
		}
		if typ == resource.Cluster && len(added)+len(resp.RemovedResources) > 0 {
			err := p.stream.Send(&discovery.DeltaDiscoveryRequest{
				TypeUrl: resource.Endpoints.URL(), ResourceNamesSubscribe: added, ResourceNamesUnsubscribe: resp.RemovedResources,
			})
			if err != nil {
				return err
			}
		}
	}
	return p.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce})
}

// diff compares what the proxy has with what it should have.
func (p *proxy) diff(want map[resource.Type][]*resource.Encoded) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return "the stream has ended: " + p.failed.Error()
	}
	for _, typ := range held {
		list := byName(want[typ])
		for name, e := range list {
			if p.held[typ][name] != e.Version {
				return fmt.Sprintf("%s %s: version %q, want %q", typ, name, p.held[typ][name], e.Version)
			}
		}
		for name := range p.held[typ] {
			if list[name] == nil {
				return fmt.Sprintf("%s %s should be gone", typ, name)
			}
		}
	}
	return ""
}

// listens reports whether the proxy has a listener.
func (p *proxy) listens(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[resource.Listener][name] != ""
}

// changes returns how many responses were answered.
func (p *proxy) changes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered
}

// gone returns all clusters that were ever removed.
func (p *proxy) gone() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.removed)
}
