package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	statuses "github.com/moonsail/moonsail/internal/status"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// control is a control plane that serves until it is stopped.
type control struct {
	addr string // of xDS
	stop func()
}

// runControl runs a control plane on a cluster; with changes options before it starts.
func runControl(t *testing.T, c *kubetest.Cluster, with func(*controlplane.Options)) *control {
	t.Helper()
	o := controlplane.Options{
		Kubernetes: &kube.Cluster{Kubeconfig: c.Kubeconfig()}, XDSPlaintextAddr: "127.0.0.1:0", Mesh: model.DefaultMesh(),
		Log: slog.New(slog.DiscardHandler), Status: true,
		Election: statuses.Election{Lease: 3 * time.Second, Renew: 2 * time.Second, Retry: 300 * time.Millisecond},
	}
	addr := make(chan string, 1)
	o.Listening = func(xds, _ net.Addr) { addr <- xds.String() }
	if with != nil {
		with(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- controlplane.Run(ctx, o) }()
	s := &control{stop: sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})}
	t.Cleanup(s.stop)
	select {
	case s.addr = <-addr:
	case err := <-ended:
		require.NoError(t, err)
	}
	return s
}

// plurals of the kinds of these tests.
var plurals = map[string]schema.GroupVersionResource{
	"VirtualService":      {Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"},
	"DestinationRule":     {Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"},
	"AuthorizationPolicy": {Group: "security.istio.io", Version: "v1", Resource: "authorizationpolicies"},
	"Gateway":             {Group: "networking.istio.io", Version: "v1", Resource: "gateways"},
	"PeerAuthentication":  {Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"},
	"EnvoyFilter":         {Group: "networking.istio.io", Version: "v1alpha3", Resource: "envoyfilters"},
}

func object(ctx context.Context, c *kubetest.Cluster, ns, kind, name string) (*unstructured.Unstructured, error) {
	gvr := plurals[kind]
	return c.Dynamic.Resource(gvr).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
}

// condition is one of an object's; nil where it has none of that type.
func condition(o *unstructured.Unstructured, typ string) map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, e := range list {
		if m, ok := e.(map[string]any); ok && m["type"] == typ {
			return m
		}
	}
	return nil
}

// awaitReconciled waits until an object's condition has a status and a reason, for the
// object as it is now, and gives its message.
func awaitReconciled(t *testing.T, c *kubetest.Cluster, ns, kind, name, truth, reason string) string {
	t.Helper()
	var message string
	c.Eventually(t, fmt.Sprintf("%s %s: %s because of %s", kind, name, truth, reason), func(ctx context.Context) error {
		o, err := object(ctx, c, ns, kind, name)
		if err != nil {
			return err
		}
		cond := condition(o, statuses.Reconciled)
		if cond["status"] != truth || cond["reason"] != reason || cond["observedGeneration"] != o.GetGeneration() {
			return fmt.Errorf("generation %d has %v", o.GetGeneration(), o.Object["status"])
		}
		message, _ = cond["message"].(string)
		return nil
	})
	return message
}

// saysOf tells whether the message of an object's condition has a text.
func saysOf(c *kubetest.Cluster, ns, kind, name, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		o, err := object(ctx, c, ns, kind, name)
		if err != nil {
			return err
		}
		if message, _ := condition(o, statuses.Reconciled)["message"].(string); !strings.Contains(message, text) {
			return fmt.Errorf("it says %q", message)
		}
		return nil
	}
}

const web = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}], selector: {app: web}}
`

func route(fault string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [web]
  http:
  - route: [{destination: {host: web}}]
    %s
`, fault)
}

// Istio's schema lets it pass: the header's name is none.
const badHeader = `headers: {request: {set: {"no header": "1"}}}`

func TestInvalidObjectSaysSo(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	runControl(t, c, nil)
	c.Apply(t, ns, web+"---"+route(badHeader))
	message := awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
	require.Contains(t, message, "spec.http[0].headers.request.set")
	require.Contains(t, message, "no header")
	o, err := object(t.Context(), c, ns, "VirtualService", "web")
	require.NoError(t, err)
	messages, _, _ := unstructured.NestedSlice(o.Object, "status", "validationMessages")
	require.NotEmpty(t, messages)
	require.Equal(t, "ERROR", messages[0].(map[string]any)["level"])
	require.Equal(t, map[string]any{"name": "SchemaValidationError", "code": "IST0106"}, messages[0].(map[string]any)["type"])

	other := []byte(fmt.Sprintf(`{"status":{"conditions":[{"type":"Other","status":"True","reason":"Mine"},{"type":"Reconciled","status":%q}]}}`, "Unknown"))
	gvr := schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
	_, err = c.Dynamic.Resource(gvr).Namespace(ns).Patch(t.Context(), "web", types.MergePatchType, other, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)

	c.Apply(t, ns, route(""))
	require.Empty(t, awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted))
	o, err = object(t.Context(), c, ns, "VirtualService", "web")
	require.NoError(t, err)
	require.Equal(t, "Mine", condition(o, "Other")["reason"], "conditions of others stay")
	_, has, _ := unstructured.NestedSlice(o.Object, "status", "validationMessages")
	require.False(t, has)

	c.Apply(t, ns, route("headers: {request: {set: {x: '1'}}}"))
	awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted)
	c.Apply(t, ns, route(badHeader))
	require.Contains(t, awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid), "its last valid version stays in force")
}

func TestWhatDoesNotFitIsAWarning(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	runControl(t, c, nil)
	c.Apply(t, ns, web+`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: fine}
spec: {hosts: [fine.example.com], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: lost}
spec: {hosts: [web], http: [{route: [{destination: {host: nowhere}}]}]}
`)
	message := awaitReconciled(t, c, ns, "VirtualService", "lost", "True", statuses.ReasonWarnings)
	require.Contains(t, message, "nowhere")

	text, err := os.ReadFile(filepath.Join("..", "e2e", "testdata", "envoyfilters-1.8.yaml"))
	require.NoError(t, err)
	c.Apply(t, ns, strings.ReplaceAll(string(text), "namespace: istio-system", "namespace: "+ns))
	for _, name := range []string{"stats-filter-1.8", "metadata-exchange-1.8"} {
		message = awaitReconciled(t, c, ns, "EnvoyFilter", name, "True", statuses.ReasonWarnings)
		require.Contains(t, message, "spec.configPatches[0]")
		require.Contains(t, message, "Envoy 1.40 has no plugin built in", "the filters of Istio's own Envoy are missing here")
	}
	c.Delete(t, ns, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: fine}")
}

// refuser is a simulated proxy that refuses resources which hold a text.
type refuser struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	text   string
	until  string // in routes
	once   sync.Once
	ready  chan struct{} // closed when it has accepted routes that hold that
}

// connectRefuser gives a proxy that has accepted routes which hold the text until.
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

func TestNACKComesBackToTheObjectThatCausedIt(t *testing.T) {
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
	require.Contains(t, message, "2 proxies refuse LDS virtualInbound (this object was changed since they accepted that last, and may be meant, or the mesh's configuration), and")
	for kind, name := range map[string]string{"VirtualService": "other", "AuthorizationPolicy": "fine"} {
		o, err := object(t.Context(), c, ns, kind, name)
		require.NoError(t, err)
		require.NotContains(t, o.Object, "status", "nothing is wrong with it: it is left alone")
	}
	c.Apply(t, ns, authorized("bad", "x-fine"))
	awaitReconciled(t, c, ns, "AuthorizationPolicy", "bad", "True", statuses.ReasonAccepted)
}

// authorized is an AuthorizationPolicy of a namespace's workloads about a caller: a proxy without services has chains
// of connections only.
func authorized(name, caller string) string {
	return fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s}
spec: {rules: [{from: [{source: {principals: [cluster.local/ns/%s/sa/default]}}]}]}
`, name, caller)
}

// cable is what a control plane reaches the API server by; it can be cut.
type cable struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards both
	conns []net.Conn
	isCut bool
}

// through writes a kubeconfig that leads through a cable.
func through(t *testing.T, c *kubetest.Cluster) (string, *cable) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + ln.Addr().String()
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	w := &cable{listener: ln, to: strings.TrimPrefix(c.Server(), "https://")}
	var accepting sync.WaitGroup
	accepting.Go(func() { w.accept(&accepting) })
	t.Cleanup(func() {
		w.cut()
		accepting.Wait()
	})
	return file, w
}

func (w *cable) accept(carrying *sync.WaitGroup) {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.to)
		if err != nil {
			in.Close()
			continue
		}
		if !w.hold(in, out) {
			return
		}
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			carrying.Go(func() {
				_, _ = io.Copy(way[0], way[1]) // ends when either end does
				way[0].Close()
			})
		}
	}
}

// hold remembers connections; of a cable that is cut they are closed.
func (w *cable) hold(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conns...)
	if w.isCut {
		for _, conn := range conns {
			conn.Close()
		}
	}
	return !w.isCut
}

func (w *cable) cut() {
	w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, conn := range w.conns {
		conn.Close()
	}
}

// holder is the control plane that writes statuses; empty: none does.
func holder(ctx context.Context, c *kubetest.Cluster) (string, error) {
	l, err := c.Client.CoordinationV1().Leases("istio-system").Get(ctx, statuses.LeaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return "", err
	}
	return *l.Spec.HolderIdentity, nil
}

// TestOneWritesAndAnotherTakesOver cuts the leader off: it cannot let go of its Lease.
func TestOneWritesAndAnotherTakesOver(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	file, wire := through(t, c)
	runControl(t, c, func(o *controlplane.Options) { o.Kubernetes.Kubeconfig = file })
	c.Apply(t, ns, web+"---"+route(badHeader))
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
	leader, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.NotEmpty(t, leader)

	second := runControl(t, c, nil)
	c.Apply(t, ns, route(""))
	awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted)
	still, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, leader, still, "the second does not write")

	wire.cut()
	c.Apply(t, ns, route(badHeader))
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
	next, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.NotEqual(t, leader, next)

	second.stop() // and it lets go
	last, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.Empty(t, last)
}
