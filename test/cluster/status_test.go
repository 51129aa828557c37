package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/election"
	statuses "github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// control is a control plane that serves until it is stopped.
type control struct {
	addr string // of xDS
	stop func()
}

// runControl runs a control plane on a cluster. with changes its options.
func runControl(t *testing.T, c *kubetest.Cluster, with func(*controlplane.Options)) *control {
	t.Helper()
	o := controlplane.Options{
		Kubernetes: &kube.Cluster{Kubeconfig: c.Kubeconfig()}, XDSPlaintextAddr: "127.0.0.1:0", Mesh: model.DefaultMesh(),
		Log: slog.New(slog.DiscardHandler), Status: true,
		Election: election.Timing{Lease: 3 * time.Second, Renew: 2 * time.Second, Retry: 300 * time.Millisecond},
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
		require.NoError(t, await.From(t, ended))
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
	"ServiceEntry":        {Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"},
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

// condition returns an object's condition of a type, or nil.
func condition(o *unstructured.Unstructured, typ string) map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, e := range list {
		if m, ok := e.(map[string]any); ok && m["type"] == typ {
			return m
		}
	}
	return nil
}

// awaitReconciled waits until an object's condition has a status and a reason for its current generation, and returns
// its message.
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

// saysOf reports whether the message of an object's condition contains a text.
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

// Istio's schema accepts it although the header's name is invalid.
const badHeader = `headers: {request: {set: {"no header": "1"}}}`

func TestInvalidObjectHasCondition(t *testing.T) {
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

// TestUnloadedControlPlaneDoesNotLead checks that a control plane which may not read some kind leaves the statuses to
// another, although it was there first.
func TestUnloadedControlPlaneDoesNotLead(t *testing.T) {
	c := kubetest.Alone(t)
	refused := make(chan struct{}, 1)
	api := c.Proxy(t)
	forbidden := kubetest.StandBefore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wasmplugins") {
			select {
			case refused <- struct{}{}:
			default:
			}
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		api.ServeHTTP(w, r)
	}), func() {})
	runControl(t, c, func(o *controlplane.Options) { o.Kubernetes.Kubeconfig = forbidden })
	await.From(t, refused)
	runControl(t, c, nil)
	ns := c.Namespace(t)
	c.Apply(t, ns, web+"---"+route(badHeader))
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
}

func TestMistakesAreWarnings(t *testing.T) {
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
