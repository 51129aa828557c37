package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

const routerOfGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moonsail}
spec: {controllerName: moonsail.dev/gateway-controller}
---
apiVersion: v1
kind: Pod
metadata: {name: router, labels: {app: router, gateway.networking.k8s.io/gateway-name: web}}
spec: {containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: Service
metadata: {name: router}
spec: {ports: [{name: http, port: 80}], selector: {app: router}}
`

func gatewayAt(port int) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: moonsail
  listeners:
  - {name: http, port: %d, protocol: HTTP, hostname: "*.example.com"}
  - {name: other, port: 9999, protocol: example.com/other}
`, port)
}

func httpRoute(host, backend string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  hostnames: [%s]
  rules: [{backendRefs: [{name: %s, port: 80}]}]
`, host, backend)
}

// gatewayResource is a resource of the Gateway API.
func gatewayResource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: plural}
}

// awaitConditions waits until an object has the wanted conditions, "Type=Status/Reason", for its current generation. in
// returns the part of the object with the conditions.
func awaitConditions(t *testing.T, c *kubetest.Cluster, ns, plural, name string, in func(*unstructured.Unstructured) map[string]any, want ...string) *unstructured.Unstructured {
	t.Helper()
	var out *unstructured.Unstructured
	c.Eventually(t, fmt.Sprintf("%s %s: %v", plural, name, want), func(ctx context.Context) error {
		o, err := c.Dynamic.Resource(gatewayResource(plural)).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		out = o
		have := map[string]bool{}
		for _, e := range listOf(in(o), "conditions") {
			if e["observedGeneration"] == o.GetGeneration() {
				have[fmt.Sprintf("%v=%v/%v", e["type"], e["status"], e["reason"])] = true
			}
		}
		for _, w := range want {
			if !have[w] {
				return fmt.Errorf("generation %d has %v", o.GetGeneration(), o.Object["status"])
			}
		}
		return nil
	})
	return out
}

func listOf(in map[string]any, field string) []map[string]any {
	var out []map[string]any
	list, _ := in[field].([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func statusOf(o *unstructured.Unstructured) map[string]any {
	s, _ := o.Object["status"].(map[string]any)
	return s
}

// entryWith returns the entry of a list of the status with a value in a field.
func entryWith(list, field, value string) func(*unstructured.Unstructured) map[string]any {
	return func(o *unstructured.Unstructured) map[string]any {
		for _, e := range listOf(statusOf(o), list) {
			if e[field] == value {
				return e
			}
		}
		return nil
	}
}

// awaitGateway waits until the Gateway web has the wanted conditions.
func awaitGateway(t *testing.T, c *kubetest.Cluster, ns string, wanted func(*unstructured.Unstructured) bool) {
	t.Helper()
	c.Eventually(t, "the status of the Gateway is as wanted", func(ctx context.Context) error {
		o, err := c.Dynamic.Resource(gatewayResource("gateways")).Namespace(ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && !wanted(o) {
			err = fmt.Errorf("%v", o.Object["status"])
		}
		return err
	})
}

// attached returns a check that the listener http has n routes.
func attached(n int64) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		return entryWith("listeners", "name", "http")(o)["attachedRoutes"] == n
	}
}

var ofUs = entryWith("parents", "controllerName", "moonsail.dev/gateway-controller")

// asDeployed runs a control plane with the rights of deploy/rbac.yaml.
func asDeployed(t *testing.T, c *kubetest.Cluster) *control {
	t.Helper()
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(rights))
	return runControl(t, c, func(o *controlplane.Options) { o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", "moonsail") })
}

// TestStatusesOfTheGatewayAPI checks that the rights of the manifests suffice to write statuses.
func TestStatusesOfTheGatewayAPI(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	asDeployed(t, c)
	c.Apply(t, ns, web+"---"+routerOfGateway+"---"+gatewayAt(8080)+"---"+httpRoute("a.example.com", "web"))
	awaitConditions(t, c, "", "gatewayclasses", "moonsail", statusOf, "Accepted=True/Accepted")
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Accepted=True/ListenersNotValid", "Programmed=True/Programmed")
	awaitGateway(t, c, ns, func(o *unstructured.Unstructured) bool {
		a := listOf(statusOf(o), "addresses")
		return len(a) == 1 && a[0]["type"] == "Hostname" && a[0]["value"] == "router."+ns+".svc.cluster.local"
	})
	awaitConditions(t, c, ns, "httproutes", "web", ofUs, "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	o := awaitConditions(t, c, ns, "gateways", "web", entryWith("listeners", "name", "http"),
		"Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs", "Programmed=True/Programmed", "Conflicted=False/NoConflicts")
	require.Equal(t, []map[string]any{{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}}, listOf(entryWith("listeners", "name", "http")(o), "supportedKinds")[:1])
	awaitGateway(t, c, ns, attached(1))
	awaitConditions(t, c, ns, "gateways", "web", entryWith("listeners", "name", "other"), "Accepted=False/UnsupportedProtocol", "Programmed=False/Invalid")

	theirs := []byte(`{"status":{"parents":[{"parentRef":{"name":"web"},"controllerName":"example.com/theirs","conditions":[` +
		`{"type":"Accepted","status":"False","reason":"No","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}]}}`)
	_, err := c.Dynamic.Resource(gatewayResource("httproutes")).Namespace(ns).Patch(t.Context(), "web", types.MergePatchType, theirs, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	c.Apply(t, ns, httpRoute("a.example.org", "nothing"))
	o = awaitConditions(t, c, ns, "httproutes", "web", ofUs, "Accepted=False/NoMatchingListenerHostname", "ResolvedRefs=False/BackendNotFound")
	require.NotNil(t, entryWith("parents", "controllerName", "example.com/theirs")(o), "parents of others stay")
	awaitGateway(t, c, ns, attached(0))
	c.Apply(t, ns, strings.ReplaceAll(httpRoute("a.example.com", "web"), "HTTPRoute", "GRPCRoute"))
	awaitConditions(t, c, ns, "grpcroutes", "web", ofUs, "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	c.Apply(t, ns, strings.ReplaceAll(httpRoute("a.example.com", "web"), "HTTPRoute", "TLSRoute"))
	awaitConditions(t, c, ns, "tlsroutes", "web", ofUs, "Accepted=False/NotAllowedByListeners", "ResolvedRefs=True/ResolvedRefs")
	c.Apply(t, ns, strings.ReplaceAll(strings.ReplaceAll(httpRoute("a.example.com", "web"), "HTTPRoute", "TCPRoute"), "  hostnames: [a.example.com]\n", ""))
	awaitConditions(t, c, ns, "tcproutes", "web", ofUs, "Accepted=False/NotAllowedByListeners", "ResolvedRefs=True/ResolvedRefs")
	c.Delete(t, ns, "apiVersion: v1\nkind: Pod\nmetadata: {name: router}")
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=False/NoResources")
}

// connectRouter connects a router of the Gateway web that refuses listeners which contain a text.
func connectRouter(t *testing.T, addr, ns, text string) {
	t.Helper()
	stream := openStream(t, addr)
	r := &refuser{stream: stream, text: text}
	metadata, err := structpb.NewStruct(map[string]any{"LABELS": map[string]any{"gateway.networking.k8s.io/gateway-name": "web"}})
	require.NoError(t, err)
	node := &core.Node{Id: strings.ReplaceAll("router~10.9.9.7~router.NS~NS.svc.cluster.local", "NS", ns), Metadata: metadata}
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Listener.URL()}))
	stream.reading.Go(r.read)
}

// TestRouterNACKIsReportedOnGateway checks that Programmed is false until the routers have accepted the Gateway.
func TestRouterNACKIsReportedOnGateway(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	s := asDeployed(t, c)
	c.Apply(t, ns, web+"---"+routerOfGateway+"---"+gatewayAt(8080)+"---"+httpRoute("a.example.com", "web"))
	connectRouter(t, s.addr, ns, "0.0.0.0_8081")
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=True/Programmed")
	c.Apply(t, ns, gatewayAt(8081))
	o := awaitConditions(t, c, ns, "gateways", "web", statusOf, "Accepted=True/ListenersNotValid", "Programmed=False/RefusedByProxies")
	require.Contains(t, fmt.Sprint(statusOf(o)), "I do not like 0.0.0.0_8081")
	c.Apply(t, ns, gatewayAt(8082))
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=True/Programmed")
}
