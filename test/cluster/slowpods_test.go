package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// slowPods is a proxy of a real API server. While it holds Pods back, it ends watches of Pods, answers new ones with
// 410 Gone, and delays lists.
type slowPods struct {
	proxy *httputil.ReverseProxy

	mu      sync.Mutex // guards the fields below
	release chan struct{}
	ctx     context.Context // of watches of Pods
	cut     context.CancelFunc
	waiting int // lists
}

// beforeCluster runs one until the test ends, and writes a kubeconfig for it.
func beforeCluster(t *testing.T, c *kubetest.Cluster) (s *slowPods, kubeconfig string) {
	t.Helper()
	s = &slowPods{proxy: c.Proxy(t)}
	s.ctx, s.cut = context.WithCancel(context.Background())
	return s, kubetest.StandBefore(t, s, func() {
		s.tell()
		s.cut()
	})
}

func (s *slowPods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	watches, lists := q.Get("watch") != "", q.Get("watch") == "" || q.Get("sendInitialEvents") != ""
	switch {
	case r.URL.Path != "/api/v1/pods":
	case !lists && s.kept():
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
		return
	case !s.wait(r.Context()):
		return
	case watches:
		s.mu.Lock()
		ctx := s.ctx
		s.mu.Unlock()
		r = r.WithContext(ctx)
	}
	s.proxy.ServeHTTP(w, r)
}

func (s *slowPods) kept() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release != nil
}

// wait waits until Pods are reported; false if no request waits any more.
func (s *slowPods) wait(ctx context.Context) bool {
	s.mu.Lock()
	release := s.release
	if release != nil {
		s.waiting++
	}
	s.mu.Unlock()
	if release == nil {
		return true
	}
	select {
	case <-release:
		return true
	case <-ctx.Done():
		return false
	}
}

// keep holds Pods back.
func (s *slowPods) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release = make(chan struct{})
	s.cut()
	s.ctx, s.cut = context.WithCancel(context.Background())
}

// tell ends that.
func (s *slowPods) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.release != nil {
		close(s.release)
		s.release, s.waiting = nil, 0
	}
}

func (s *slowPods) listing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// assigned collects every list of endpoints of one cluster that a proxy is sent: whether callers use mutual TLS, by
// address.
type assigned struct {
	mu     sync.Mutex // guards the fields below
	lists  []map[string]bool
	failed error
}

func watchEndpoints(t *testing.T, addr, ns, cluster string) *assigned {
	t.Helper()
	s, a := openStream(t, addr), &assigned{}
	node := &core.Node{Id: "sidecar~10.9.9.9~client." + ns + "~" + ns + ".svc.cluster.local", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{"SDS": structpb.NewStringValue("true")},
	}}
	require.NoError(t, s.Send(&discovery.DeltaDiscoveryRequest{
		Node: node, TypeUrl: resource.Endpoints.URL(), ResourceNamesSubscribe: []string{cluster},
	}))
	s.reading.Go(func() {
		for {
			resp, err := s.Recv()
			if err == nil {
				err = a.take(resp)
			}
			if err == nil {
				err = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce})
			}
			if err != nil {
				a.mu.Lock()
				a.failed = err
				a.mu.Unlock()
				return
			}
		}
	})
	return a
}

func (a *assigned) take(resp *discovery.DeltaDiscoveryResponse) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range resp.Resources {
		var load endpoint.ClusterLoadAssignment
		if err := r.Resource.UnmarshalTo(&load); err != nil {
			return err
		}
		list := map[string]bool{}
		for _, l := range load.Endpoints {
			for _, e := range l.LbEndpoints {
				address := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
				if _, twice := list[address]; twice {
					return fmt.Errorf("%s is there twice", address)
				}
				match := e.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"].GetFields()["tlsMode"]
				list[address] = match.GetStringValue() != "disabled"
			}
		}
		a.lists = append(a.lists, list)
	}
	return nil
}

// now returns the newest list, and how many there were.
func (a *assigned) now() (map[string]bool, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lists) == 0 {
		return nil, 0
	}
	return a.lists[len(a.lists)-1], len(a.lists)
}

// newest returns the newest list, and the error that ended the stream.
func (a *assigned) newest() (map[string]bool, error) {
	list, _ := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return list, a.failed
}

// shopInMesh is shop with sidecars.
var shopInMesh = strings.Replace(shop, "metadata: {labels: {app: web}}", "metadata: {labels: {app: web, security.istio.io/tlsMode: istio}}", 1)

// replaced waits until a service has three ready endpoints, all of them new, and returns their addresses.
func replaced(t *testing.T, c *kubetest.Cluster, ns string, before []string) []string {
	t.Helper()
	var out []string
	c.Eventually(t, "three endpoints, all of them new", func(ctx context.Context) error {
		all, err := c.Endpoints(ctx, ns, "web")
		if err != nil {
			return err
		}
		out = slices.Sorted(maps.Keys(all))
		for a, e := range all {
			if slices.Contains(before, a) || e.Conditions.Ready == nil || !*e.Conditions.Ready {
				return fmt.Errorf("%s is among them", a)
			}
		}
		if len(out) != 3 {
			return fmt.Errorf("there are %d", len(out))
		}
		return nil
	})
	return out
}

// TestUnknownPodsGetNoCalls replaces all replicas while the control plane receives their slices but no Pods, as after
// an outage of their watch. An endpoint whose Pod is unknown must get no calls, which would be plaintext. Removed
// endpoints must go at once. At the end all endpoints must be there.
func TestUnknownPodsGetNoCalls(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, shopInMesh)
	first := replaced(t, c, ns, nil)
	slow, kubeconfig := beforeCluster(t, c)
	s := runControl(t, c, func(o *controlplane.Options) {
		o.Status, o.Kubernetes.Kubeconfig = false, kubeconfig
	})
	a := watchEndpoints(t, s.addr, ns, "outbound|80||web."+ns+".svc.cluster.local")
	holds := func(want []string) {
		t.Helper()
		c.Eventually(t, fmt.Sprintf("endpoints %v", want), func(context.Context) error {
			if got, _ := a.now(); !slices.Equal(want, slices.Sorted(maps.Keys(got))) {
				return fmt.Errorf("the proxy has %v", got)
			}
			return nil
		})
	}
	holds(first)

	slow.keep()
	c.Eventually(t, "a list of Pods", func(context.Context) error {
		if slow.listing() == 0 {
			return fmt.Errorf("no client asks")
		}
		return nil
	})
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, time.Now())
	_, err := c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	second := replaced(t, c, ns, first)
	holds(nil) // the old ones are gone, and the new ones are unknown
	slow.tell()
	holds(second)

	a.mu.Lock()
	defer a.mu.Unlock()
	require.NoError(t, a.failed)
	for i, list := range a.lists {
		for address, mutual := range list {
			require.True(t, mutual, "list %d of %d has %s in plaintext", i, len(a.lists), address)
		}
	}
}
