package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// A right is one verb of one resource that a Role or ClusterRole grants, on one object or all.
type right struct {
	role, namespace, group, resource, name, verb string // namespace: where it is bound; empty: in all
}

func (r right) String() string {
	of := strings.TrimSuffix(r.resource+"."+r.group, ".")
	if r.name != "" {
		of += "/" + r.name
	}
	return r.role + ": " + r.verb + " " + of
}

func (r right) permits(q apiRequest) bool {
	return (r.namespace == "" || r.namespace == q.namespace) && r.verb == q.verb && r.group == q.group && (r.resource == q.resource || r.resource == "*" && !strings.Contains(q.resource, "/")) &&
		(r.name == "" || r.name == q.name)
}

// grantedRights are those of the shipped manifest. bound has the namespaces of ClusterRoles with RoleBindings.
func grantedRights(t *testing.T, manifest []byte, bound map[string]string) []right {
	t.Helper()
	var out []right
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var o struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
		}
		err := docs.Decode(&o)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		for _, rule := range o.Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						for _, verb := range rule.Verbs {
							out = append(out, right{o.Kind + " " + o.Name, cmp.Or(o.Namespace, bound[o.Name]), group, resource, name, verb})
						}
					}
				}
			}
		}
	}
}

// apiRequest is what the API server authorizes: a verb on a resource, and the object's name if the request has one.
type apiRequest struct {
	verb, group, resource, namespace, name string
}

// requestOf reads a request to the API server; not ok: it is for no resource.
func requestOf(method string, u *url.URL) (q apiRequest, ok bool) {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		q.group, parts = parts[1], parts[3:]
	default:
		return q, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if len(parts) > 2 {
		q.resource += "/" + parts[2]
	}
	query := u.Query()
	q.verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get"}[method]
	if method == http.MethodGet && q.name == "" {
		q.verb = "list"
		q.name, _ = strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
		if query.Get("watch") == "true" || query.Get("watch") == "1" {
			q.verb = "watch"
		}
	}
	return q, true
}

// requestLog has the requests that the API server permitted.
type requestLog struct {
	mu      sync.Mutex // guards the rest
	seen    map[apiRequest]bool
	refused map[apiRequest]bool
}

func (l *requestLog) add(r *http.Request, status int) {
	q, ok := requestOf(r.Method, r.URL)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if status == http.StatusForbidden || status == http.StatusUnauthorized {
		l.refused[q] = true
		return
	}
	l.seen[q] = true
	if r.URL.Query().Get("sendInitialEvents") == "true" { // API servers before Kubernetes 1.34 are asked for a list
		q.verb = "list"
		l.seen[q] = true
	}
	if q.verb == "patch" && status == http.StatusCreated { // an apply that creates needs both
		q.verb = "create"
		l.seen[q] = true
	}
}

// unneeded returns the rights without which each request was permitted all the same.
func (l *requestLog) unneeded(rights []right) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := map[right]bool{}
	for _, without := range []string{"", "ClusterRole moonsail-gateways", "ClusterRole moonsail-authorities"} { // deployments without them
		for q := range l.seen {
			var by []right
			for _, r := range rights {
				if r.role != without && r.permits(q) {
					by = append(by, r)
				}
			}
			if len(by) == 1 {
				needed[by[0]] = true
			}
		}
	}
	out := map[string]bool{}
	for _, r := range rights {
		if !needed[r] {
			out[r.String()] = true
		}
	}
	return out
}

// watched runs an account's requests through a proxy that remembers them.
func watched(t *testing.T, c *kubetest.Cluster, account string) (log *requestLog, kubeconfig string) {
	t.Helper()
	log = &requestLog{seen: map[apiRequest]bool{}, refused: map[apiRequest]bool{}}
	api := c.Proxy(t)
	modify := api.ModifyResponse
	api.ModifyResponse = func(r *http.Response) error {
		log.add(r.Request, r.StatusCode)
		if modify != nil {
			return modify(r)
		}
		return nil
	}
	ctx, end := context.WithCancel(context.Background())
	return log, kubetest.StandBefore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Impersonate-User", "system:serviceaccount:istio-system:"+account)
		both, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		api.ServeHTTP(w, r.WithContext(both))
	}), end)
}

// unusedRights are rights of deploy/rbac.yaml that TestRightsAreNeeded does not see in use, and why they stay.
var unusedRights = map[string]string{
	"ClusterRole moonsail: list *.install.istio.io":          "the test's cluster does not serve IstioOperators",
	"ClusterRole moonsail: watch *.install.istio.io":         "the test's cluster does not serve IstioOperators",
	"ClusterRole moonsail-credentials: get secrets":          "commands such as moonsail analyze, as this account",
	"ClusterRole moonsail-authorities: get configmaps":       "commands such as moonsail analyze, as this account",
	"Role moonsail: update configmaps/moonsail-dependencies": "a proxy called a service: TestSharedData",
	"Role moonsail: update secrets/istio-ca-secret":          "a root is renewed after 8 of its 10 years: TestGeneratedRootIsRenewed",
	"ClusterRole moonsail: get *.networking.istio.io":        "another writer changed a status: TestConflictTakesTheNewestAndKeepsOthersConditions",
	"ClusterRole moonsail: get *.security.istio.io":          "as above",
	"ClusterRole moonsail: get *.telemetry.istio.io":         "as above",
	"ClusterRole moonsail: get *.extensions.istio.io":        "as above",
	"ClusterRole moonsail: get ingresses.networking.k8s.io":  "as above",
}

// TestRightsAreNeeded runs a control plane with everything that it does, and takes away one right of the shipped
// manifest at a time: each must have permitted a request that no other right permits.
func TestRightsAreNeeded(t *testing.T) {
	c := kubetest.Alone(t)
	manifest, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(manifest))
	ns := c.Namespace(t)
	rights := grantedRights(t, manifest, map[string]string{"moonsail-credentials": ns, "moonsail-authorities": ns})
	prepareRights(t, c, ns)

	log, kubeconfig := watched(t, c, "moonsail")
	addr := make(chan string, 1)
	runControl(t, c, func(o *controlplane.Options) {
		o.Kubernetes.Kubeconfig, o.Revision = kubeconfig, model.DefaultRevision
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		o.Heartbeat, o.DeployGateways, o.RecheckReaders = 100*time.Millisecond, true, 100*time.Millisecond
		o.Dependencies.Learn = true
		o.Identity = controlplane.Identity{Addr: "127.0.0.1:0", ReadEvery: 100 * time.Millisecond, Listening: func(a net.Addr) { addr <- a.String() }}
		o.Webhook.Addr, o.Webhook.Config, o.Webhook.InjectConfig = "127.0.0.1:0", "moonsail-validator", "moonsail-injector"
		o.Webhook.Inject = inject.Default()
		require.NoError(t, o.Webhook.Inject.Prepare())
	})
	_, err = certificate(t, await.From(t, addr), poolOf(t, rootsOf(t, c, ns)), tokenOf(t, c, ns, "reader", "istio-ca"))
	require.NoError(t, err)
	useRights(t, c, ns)

	c.Eventually(t, "each right is used", func(context.Context) error {
		unused := log.unneeded(rights)
		for r := range unusedRights {
			delete(unused, r)
		}
		if len(unused) > 0 {
			return fmt.Errorf("not needed:\n%s", strings.Join(slices.Sorted(maps.Keys(unused)), "\n"))
		}
		return nil
	})
	for r, why := range unusedRights {
		require.True(t, slices.ContainsFunc(rights, func(g right) bool { return g.String() == r }), "%s: the manifest has no such right; remove it from the list (%s)", r, why)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	require.Empty(t, log.refused, "requests for which the manifest grants no right")
}

// prepareRights creates what the control plane finds at its start.
func prepareRights(t *testing.T, c *kubetest.Cluster, ns string) {
	t.Helper()
	read := func(file string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
		require.NoError(t, err)
		return string(b)
	}
	// Nothing serves the Services here, so that the API server must not call them.
	hooks := c.Client.AdmissionregistrationV1()
	t.Cleanup(func() { // the cluster may be gone
		_ = hooks.ValidatingWebhookConfigurations().Delete(context.Background(), "moonsail-validator", metav1.DeleteOptions{})
		_ = hooks.MutatingWebhookConfigurations().Delete(context.Background(), "moonsail-injector", metav1.DeleteOptions{})
	})
	before, rest, _ := strings.Cut(read("webhook.yaml"), "  failurePolicy: Ignore\n")
	c.Apply(t, "", before+"  failurePolicy: Ignore\n  namespaceSelector: {matchLabels: {no: namespace}}\n"+rest)
	c.Apply(t, "", strings.ReplaceAll(read("injector.yaml"), "  failurePolicy: Fail\n", "  failurePolicy: Ignore\n"))
	secret, _ := secretOf(t, "api-client")
	cert, _ := newPair(t)
	c.Apply(t, ns, strings.Join([]string{
		credentialed, secret, mayReadSecret, controlPlaneMay("moonsail-credentials"), controlPlaneMay("moonsail-authorities"),
		strings.ReplaceAll(strings.Replace(trusting, "{name: api}", "{name: cas}", 1), "NAMESPACE", ns),
		fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: roots}\ndata: {ca.crt: %q}", cert),
	}, "\n---\n"))
}

// useRights creates objects that make the control plane write statuses, and deploy a Gateway and remove it.
func useRights(t *testing.T, c *kubetest.Cluster, ns string) {
	t.Helper()
	c.Apply(t, ns, mistaken)
	c.Apply(t, "istio-system", ingressService)
	address := []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
	_, err := c.Client.CoreV1().Services("istio-system").Patch(t.Context(), "istio-ingressgateway", types.MergePatchType, address, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	parameters := func(data string) {
		c.Apply(t, ns, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: "+data)
	}
	parameters(`{horizontalPodAutoscaler: "spec: {maxReplicas: 4}", podDisruptionBudget: "spec: {minAvailable: 1}", service: "spec: {type: ClusterIP}"}`)
	gateway := deployedGateway("moonsail", 80, "", `, infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: web}}`)
	c.Apply(t, ns, gateway)
	awaitConditions(t, c, ns, "gateways", "web", statusOf, "Programmed=True/Programmed")
	scaling := func(what string, as func(error) bool) { // Programmed does not wait for these objects
		c.Eventually(t, what, func(ctx context.Context) error {
			if _, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "web-moonsail", metav1.GetOptions{}); !as(err) {
				return fmt.Errorf("the autoscaler: %w", cmp.Or(err, errors.New("it is there")))
			}
			if _, err := c.Client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "web-moonsail", metav1.GetOptions{}); !as(err) {
				return fmt.Errorf("the budget: %w", cmp.Or(err, errors.New("it is there")))
			}
			return nil
		})
	}
	scaling("autoscaler and budget come", func(err error) bool { return err == nil })
	parameters(`{service: "spec: {type: ClusterIP}"}`)
	scaling("autoscaler and budget go", apierrors.IsNotFound)
	gateway = strings.Replace(gateway, "gatewayClassName: moonsail", "gatewayClassName: istio", 1)
	c.Apply(t, ns, gateway)
	awaitNone(t, c, ns, "web-moonsail") // the garbage collector deletes objects only if their Gateway is gone
	c.Delete(t, ns, gateway)
}

// ingressService has the addresses of Ingresses.
const ingressService = `
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway}
spec: {type: LoadBalancer, selector: {no: pod}, ports: [{port: 80}]}`

// mistaken are objects with statuses that are worth a condition.
const mistaken = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: m}
spec: {hosts: [m.example.com], http: [{route: [{destination: {host: nowhere}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: m}
spec: {host: nowhere}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: m}
spec: {selector: {no: pod}, servers: [{hosts: ["*"], port: {number: 443, name: https, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: nothing}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: m}
spec: {hosts: [m.example.com], resolution: DNS, ports: [{number: 443, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: m}
spec: {workloadSelector: {labels: {no: pod}}, egress: [{hosts: ["./nowhere"]}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: m}
spec: {address: not-an-address!}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: m}
spec: {selector: {matchLabels: {no: pod}}, environmentVariables: {"not a name": x}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: m}
spec: {workloadSelector: {labels: {no: pod}}, configPatches: [{applyTo: CLUSTER, match: {context: ANY}, patch: {operation: MERGE, value: {no_such_field: 1}}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: m}
spec: {selector: {matchLabels: {no: pod}}, rules: [{to: [{operation: {methods: [get]}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: m}
spec: {selector: {matchLabels: {no: pod}}, mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: m}
spec: {selector: {matchLabels: {no: pod}}, jwtRules: [{issuer: me, jwks: not-a-key-set}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: m}
spec: {selector: {matchLabels: {no: pod}}, accessLogging: [{filter: {expression: "((("}}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: m}
spec: {selector: {matchLabels: {no: pod}}, url: "oci://no registry"}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: istio}
spec: {controller: istio.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: m}
spec: {ingressClassName: istio, rules: [{host: m.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: nowhere, port: {number: 80}}}}]}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: m}
spec: {parentRefs: [{name: lasting}], rules: [{backendRefs: [{name: nowhere, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: m}
spec: {parentRefs: [{name: lasting}], rules: [{backendRefs: [{name: nowhere, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: m}
spec: {parentRefs: [{name: lasting}], hostnames: [m.example.com], rules: [{backendRefs: [{name: nowhere, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: m}
spec: {parentRefs: [{name: lasting}], rules: [{backendRefs: [{name: nowhere, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: m}
spec: {targetRefs: [{group: "", kind: Service, name: nowhere}], validation: {hostname: m.example.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: nothing}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: m}
spec: {parentRef: {name: lasting}, listeners: [{name: m, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: lasting}
spec: {gatewayClassName: moonsail, listeners: [{name: http, port: 80, protocol: HTTP}]}
`
