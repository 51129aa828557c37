package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/kubetest"
)

const patience = 2 * time.Minute

const shop = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
`

const changing = `
apiVersion: v1
kind: Service
metadata: {name: s%[1]d}
spec: {selector: {app: web}, ports: [{name: http, port: %[2]d, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: s%[1]d}
spec: {host: s%[1]d, trafficPolicy: {connectionPool: {tcp: {maxConnections: %[2]d}}}}
`

// churn changes a namespace until ctx ends. It ignores errors while the API server is down.
func churn(ctx context.Context, c *kubetest.Cluster, ns string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		step, cancel := context.WithTimeout(ctx, time.Second)
		i := r.IntN(8)
		switch r.IntN(5) {
		case 0:
			_ = c.Client.CoreV1().Services(ns).Delete(step, fmt.Sprintf("s%d", i), metav1.DeleteOptions{})
		case 1:
			patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, r.IntN(6))
			_, _ = c.Client.AppsV1().Deployments(ns).Patch(step, "web", types.MergePatchType, patch, metav1.PatchOptions{})
		default:
			_ = c.TryApply(step, ns, fmt.Sprintf(changing, i, 1+r.IntN(1000)))
		}
		cancel()
	}
}

// TestProxiesThroughOutages kills the API server several times during churn, with proxies connected. No proxy may lose
// a cluster that was not deleted. At the end each must have what a new list of the cluster gives.
func TestProxiesThroughOutages(t *testing.T) {
	c := kubetest.Alone(t)
	quiet, busy := c.Namespace(t), c.Namespace(t)
	c.Apply(t, quiet, shop)
	c.Apply(t, busy, shop)
	xds, url := serve(t, c)
	require.Eventually(t, func() bool { return ready(t, url) }, patience, 10*time.Millisecond)
	proxies := []*proxy{connect(t, xds, quiet), connect(t, xds, busy), connect(t, xds, "elsewhere")}
	settle(t, c, proxies)

	ctx, stop := context.WithCancel(context.Background())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var changing sync.WaitGroup
	changing.Go(func() { churn(ctx, c, busy, seed) })
	defer changing.Wait()
	defer stop()
	for range 2 {
		before := proxies[0].changes()
		require.Eventually(t, func() bool { return proxies[0].changes() > before+5 }, patience, 10*time.Millisecond)
		c.Kill()
		c.Restart(t)
	}
	before := proxies[0].changes()
	require.Eventually(t, func() bool { return proxies[0].changes() > before+5 }, patience, 10*time.Millisecond)
	stop()
	changing.Wait()
	settle(t, c, proxies)
	for _, p := range proxies {
		for name := range p.gone() {
			require.NotContains(t, name, "."+quiet+".svc", "it was taken away from %s", p.model)
		}
	}
}

// settle waits until each proxy has what it should.
func settle(t *testing.T, c *kubetest.Cluster, proxies []*proxy) {
	t.Helper()
	client, err := kube.Connect(kube.Cluster{Kubeconfig: c.Kubeconfig()})
	require.NoError(t, err)
	defer client.Close()
	mesh := model.DefaultMesh()
	var diff string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		content, err := client.Read(t.Context(), config.Decoder{}, mesh.RootNamespace)
		require.NoError(t, err)
		if diff = differences(mesh, content, proxies); diff == "" {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	require.Fail(t, "proxies hold something else", diff)
}

func differences(mesh *model.Mesh, content *kube.Content, proxies []*proxy) string {
	var all []string
	for _, p := range proxies {
		want, _ := engine.Compile(mesh, content.Objects, p.model)
		if d := p.diff(want); d != "" {
			all = append(all, p.model.String()+": "+d)
		}
	}
	return strings.Join(all, "\n")
}
