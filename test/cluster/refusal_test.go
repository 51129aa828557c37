package cluster

import (
	"strings"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	statuses "github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// refuser is a simulated proxy that refuses resources which contain a text.
type refuser struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	text   string
	until  string // in routes
	once   sync.Once
	ready  chan struct{} // closed when it has accepted routes that contain until
}

// connectRefuser connects a refuser. It has accepted routes that contain until when it returns.
func connectRefuser(t *testing.T, addr, ns, text, until string) {
	t.Helper()
	stream := openStream(t, addr)
	r := &refuser{stream: stream, text: text, until: until, ready: make(chan struct{})}
	metadata, err := structpb.NewStruct(map[string]any{"LABELS": map[string]any{"app": "client"}})
	require.NoError(t, err)
	node := &core.Node{Id: "sidecar~10.9.9.8~client." + ns + "~" + ns + ".svc.cluster.local", Metadata: metadata}
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.RouteConfig.URL(), ResourceNamesSubscribe: []string{"80"},
	}))
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.Listener.URL()}))
	stream.reading.Go(r.read)
	select {
	case <-r.ready:
	case <-t.Context().Done():
	}
}

func (r *refuser) read() {
	for {
		resp, err := r.stream.Recv()
		if err == nil {
			err = r.answer(resp)
		}
		if err != nil {
			return
		}
	}
}

func (r *refuser) answer(resp *discovery.DeltaDiscoveryResponse) error {
	var names []string
	for _, one := range resp.Resources {
		if strings.Contains(string(one.Resource.Value), r.text) {
			return r.stream.Send(&discovery.DeltaDiscoveryRequest{
				TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce,
				ErrorDetail: &status.Status{Code: 13, Message: "Error adding/updating " + one.Name + ": I do not like " + r.text},
			})
		}
		names = append(names, one.Name)
		if resp.TypeUrl == resource.RouteConfig.URL() && strings.Contains(string(one.Resource.Value), r.until) {
			r.once.Do(func() { close(r.ready) })
		}
	}
	if resp.TypeUrl == resource.Cluster.URL() && len(names)+len(resp.RemovedResources) > 0 {
		err := r.stream.Send(&discovery.DeltaDiscoveryRequest{
			TypeUrl: resource.Endpoints.URL(), ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: resp.RemovedResources,
		})
		if err != nil {
			return err
		}
	}
	return r.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce})
}

func TestNACKIsReportedOnItsObject(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	s := runControl(t, c, nil)
	c.Apply(t, ns, web+"---"+strings.Replace(web, "name: web", "name: other", 1)+"---"+route("")+`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web}
spec: {host: web, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-fine}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: other}
spec: {hosts: [other], http: [{route: [{destination: {host: other}}]}]}
---`+authorized("fine", "x-fine"))
	for range 2 {
		connectRefuser(t, s.addr, ns, "x-refused", "/virtual-service/other")
	}
	c.Apply(t, ns, route("headers: {request: {set: {x-refused: '1'}}}"))
	message := awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonRefused)
	require.Contains(t, message, "I do not like x-refused")
	require.Contains(t, message, "RDS 80")

	c.Apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web}
spec: {host: web, subsets: [{name: x-refused}]}
`)
	message = awaitReconciled(t, c, ns, "DestinationRule", "web", "False", statuses.ReasonRefused)
	require.Contains(t, message, "2 proxies refuse CDS outbound|80|x-refused|web."+ns)

	c.Apply(t, ns, route("headers: {request: {set: {x-fine: '1'}}}"))
	awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted)
	c.Delete(t, ns, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web}
`)
	c.Apply(t, ns, authorized("bad", "x-refused"))
	message = awaitReconciled(t, c, ns, "AuthorizationPolicy", "bad", "False", statuses.ReasonRefused)
	require.Contains(t, message, "2 proxies refuse LDS virtualInbound, and their last accepted version stays in force", "nothing else changed: it is the cause")
	for kind, name := range map[string]string{"VirtualService": "other", "AuthorizationPolicy": "fine"} {
		o, err := object(t.Context(), c, ns, kind, name)
		require.NoError(t, err)
		require.NotContains(t, o.Object, "status", "nothing is wrong with it: it is left alone")
	}
	c.Apply(t, ns, authorized("bad", "x-fine"))
	awaitReconciled(t, c, ns, "AuthorizationPolicy", "bad", "True", statuses.ReasonAccepted)
}
