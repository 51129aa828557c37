package kube

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// churn changes a namespace's services, routes and replicas until it is stopped. It ignores requests that fail while the
// API server is away.
type churn struct {
	c       *kubetest.Cluster
	ns      string
	rand    *rand.Rand
	applied int
}

func startChurn(t *testing.T, c *kubetest.Cluster, ns string) (stop func() int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	churn := &churn{c: c, ns: ns, rand: rand.New(rand.NewPCG(seed, 1))}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			churn.step(ctx)
		}
	})
	stopped := sync.OnceValue(func() int {
		cancel()
		running.Wait()
		return churn.applied
	})
	t.Cleanup(func() { stopped() })
	return stopped
}

const churned = `
apiVersion: v1
kind: Service
metadata: {name: s%[1]d}
spec: {selector: {app: s%[1]d}, ports: [{name: http, port: %[2]d}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: s%[1]d}
spec: {hosts: [s%[1]d], http: [{timeout: %[2]ds, route: [{destination: {host: s%[1]d}}]}]}
`

func (c *churn) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	i := c.rand.IntN(8)
	var err error
	switch c.rand.IntN(5) {
	case 0:
		err = c.c.Client.CoreV1().Services(c.ns).Delete(ctx, fmt.Sprintf("s%d", i), metav1.DeleteOptions{})
	case 1:
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, c.rand.IntN(6))
		_, err = c.c.Client.AppsV1().Deployments(c.ns).Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
	default:
		err = c.c.TryApply(ctx, c.ns, fmt.Sprintf(churned, i, 1+c.rand.IntN(1000)))
	}
	if err == nil {
		c.applied++
	}
}

// TestOutages kills the API server, and pauses it, while everything changes. In the end the store must equal a new list,
// and no object may have been missing in between unless it was deleted.
func TestOutages(t *testing.T) {
	c := kubetest.Alone(t)
	quiet, busy := c.Namespace(t), c.Namespace(t)
	c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}") // the heartbeat's
	c.Apply(t, quiet, shop)
	c.Apply(t, busy, shop)
	m := follow(t, c)
	m.ready(t)
	m.eventually(t, "all Pods", func() bool { return m.readyMembers(quiet, "web") == 3 && m.readyMembers(busy, "web") == 3 })
	m.mu.Lock()
	settled := len(m.changes)
	m.mu.Unlock()

	stop := startChurn(t, c, busy)
	for range 3 {
		before := m.revision()
		m.eventually(t, "changes", func() bool { return m.revision() > before+20 })
		c.Kill()
		m.eventually(t, "kinds that fail", func() bool { return m.failingKinds() > 0 })
		c.Restart(t)
		m.eventually(t, "none that fails", func() bool { return m.failingKinds() == 0 })
	}
	quietFor := func() time.Duration { return time.Since(m.Health().Heartbeat) }
	m.eventually(t, "a heartbeat", func() bool { return quietFor() < time.Second })
	c.Pause(t)
	<-time.After(time.Second) // long enough for requests to be under way
	m.eventually(t, "no heartbeat", func() bool { return quietFor() > 2*time.Second })
	c.Resume(t)
	m.eventually(t, "a heartbeat again", func() bool { return quietFor() < time.Second })
	before := m.revision()
	m.eventually(t, "changes after the last outage", func() bool { return m.revision() > before+20 })
	t.Logf("%d changes applied, %d seen", stop(), m.revision())
	m.requireSame(t)
	require.Positive(t, versionsGone(t, c, really), "the API server has refused versions")

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, change := range m.changes[settled:] {
		if change.Key.Namespace == quiet && change.New == nil {
			require.Fail(t, "gone for a while", "%s", change.Key)
		}
	}
}

// TestKindsOfAStartingAPIServer checks that a control plane does not take kinds for missing that an API server does not know
// yet, neither at its start nor later: without policies, calls would be allowed that they forbid.
func TestKindsOfAStartingAPIServer(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, shop)
	var ready atomic.Bool
	asked := make(chan struct{}, 100)
	api := c.Proxy(t)
	ctx, end := context.WithCancel(context.Background())
	kubeconfig := kubetest.StandBefore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !ready.Load() && r.URL.Path == readyPath:
			select {
			case asked <- struct{}{}:
			default:
			}
			http.Error(w, "[-]poststarthook/apiservice-discovery-controller failed", http.StatusInternalServerError)
		case !ready.Load() && r.URL.Path == discoveryPath:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}`)
		default:
			both, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			api.ServeHTTP(w, r.WithContext(both))
		}
	}), end)
	m := followWith(t, kubeconfig)
	for range 2 {
		await.From(t, asked)
	}
	require.Error(t, m.Waiting(), "it is not synced")
	ready.Store(true)
	m.ready(t)
	require.NotNil(t, m.get(model.KindVirtualService, ns, "web"))

	ready.Store(false)
	for len(asked) > 0 {
		<-asked
	}
	for range 2 {
		await.From(t, asked)
	}
	require.NotNil(t, m.get(model.KindVirtualService, ns, "web"))
}

// failingKinds is the number of kinds whose requests fail.
func (m *mirror) failingKinds() (n int) {
	for _, k := range m.Health().Kinds {
		if k.FailingFor(time.Now()) > 0 {
			n++
		}
	}
	return n
}

func (m *mirror) revision() model.Revision { return m.store.Snapshot().Revision }

var crds = filepath.Join("..", "..", "..", ".tools", "kube", "crds")

// TestKindsThatComeAndGo starts without Istio's kinds, installs them, serves one in another version, and removes one.
func TestKindsThatComeAndGo(t *testing.T) {
	some := t.TempDir()
	const other = "gateway.networking.k8s.io_referencegrants.yaml"
	require.NoError(t, os.WriteFile(filepath.Join(some, other), []byte(read(t, other)), 0o600))
	c := kubetest.Start(t, "--crds", some)
	ns := c.Namespace(t)
	m := follow(t, c)
	m.ready(t)
	require.Zero(t, m.store.Snapshot().Len(model.KindVirtualService))

	c.Apply(t, "", read(t, "istio.yaml"))
	c.Eventually(t, "the kind", func(ctx context.Context) error {
		return c.TryApply(ctx, ns, fmt.Sprintf(churned, 1, 80))
	})
	m.eventually(t, "the route", func() bool { return m.get(model.KindVirtualService, ns, "s1") != nil })
	m.otherVersion(t, c, ns)
	c.Delete(t, "", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: virtualservices.networking.istio.io}\n")
	m.eventually(t, "the route's end", func() bool { return m.get(model.KindVirtualService, ns, "s1") == nil })
	require.NotNil(t, m.get(model.KindService, ns, "s1"))
}

const tlsRoute = `
apiVersion: gateway.networking.k8s.io/%s
kind: TLSRoute
metadata: {name: %s}
spec: {parentRefs: [{name: web}], hostnames: [%s], rules: [{backendRefs: [{name: web, port: 443}]}]}
`

// otherVersion upgrades a definition to one that does not serve the watched version: existing objects stay, and later
// changes are received.
func (m *mirror) otherVersion(t *testing.T, c *kubetest.Cluster, ns string) {
	t.Helper()
	apply := func(version, name, host string) {
		c.Eventually(t, "that version", func(ctx context.Context) error {
			return c.TryApply(ctx, ns, fmt.Sprintf(tlsRoute, version, name, host))
		})
	}
	hosts := func(name string) string {
		v, _ := m.get(model.KindTLSRoute, ns, name).(*model.VirtualService)
		if v == nil {
			return ""
		}
		return fmt.Sprint(v.Hosts)
	}
	c.Apply(t, "", serving(t, "v1alpha2"))
	apply("v1alpha2", "changes", "one.example.com")
	apply("v1alpha2", "goes", "one.example.com")
	apply("v1alpha2", "stays", "one.example.com")
	m.eventually(t, "the old version's routes", func() bool {
		return hosts("changes") != "" && hosts("goes") != "" && hosts("stays") != ""
	})
	settled := m.revision()
	c.Apply(t, "", serving(t, "v1"))
	apply("v1", "changes", "two.example.com")
	apply("v1", "comes", "two.example.com")
	c.Delete(t, ns, fmt.Sprintf(tlsRoute, "v1", "goes", "one.example.com"))
	m.eventually(t, "what changed since", func() bool {
		return hosts("changes") == "[two.example.com]" && hosts("comes") != "" && hosts("goes") == ""
	})
	require.Equal(t, "[one.example.com]", hosts("stays"))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, change := range m.changes[min(int(settled), len(m.changes)):] {
		require.False(t, change.Key.Name == "stays" && change.New == nil, "gone for a while")
	}
}

// serving is the definition of TLSRoutes, with one version served.
func serving(t *testing.T, version string) string {
	t.Helper()
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "gateway.networking.k8s.io_tlsroutes.yaml")), &crd))
	delete(crd, "status")
	found := false
	for _, v := range crd["spec"].(map[string]any)["versions"].([]any) {
		v := v.(map[string]any)
		this := v["name"] == version
		v["served"], v["storage"] = this, this
		found = found || this
	}
	require.True(t, found)
	text, err := yaml.Marshal(crd)
	require.NoError(t, err)
	return string(text)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(crds, file))
	require.NoError(t, err)
	return string(text)
}
