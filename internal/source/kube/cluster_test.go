package kube

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(kubetest.Main(m))
}

const shop = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: serve}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, version: v1}}
    spec:
      containers: [{name: web, image: web, ports: [{name: serve, containerPort: 8080}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [web]
  http: [{route: [{destination: {host: web}}]}]
`

func TestFollowsACluster(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, shop)
	m := follow(t, c)
	m.ready(t)
	require.NoError(t, m.Waiting())
	m.eventually(t, "ready Pods", func() bool { return m.readyMembers(ns, "web") == 3 })
	require.Equal(t, 3, m.count(model.KindPod, ns))
	svc := m.get(model.KindService, ns, "web").(*model.Service)
	require.NotEmpty(t, svc.Addresses)
	require.NotNil(t, m.get(model.KindVirtualService, ns, "web"))
	require.NotNil(t, m.get(model.KindNamespace, "", ns))
	for o := range m.store.Snapshot().All(model.KindPod) {
		if w := o.(*model.Workload); w.Namespace == ns {
			require.NotNil(t, m.get(model.KindNode, "", w.Node))
			require.Equal(t, uint32(8080), w.NamedPorts["serve"])
			require.Equal(t, "default", w.ServiceAccount)
		}
	}

	scale(t, c, ns, 1)
	m.eventually(t, "one Pod", func() bool { return m.readyMembers(ns, "web") == 1 && m.count(model.KindPod, ns) == 1 })
	c.Delete(t, ns, shop)
	m.eventually(t, "nothing", func() bool {
		return m.count(model.KindService, ns)+m.count(model.KindPod, ns)+m.count(model.KindEndpointSlice, ns)+m.count(model.KindVirtualService, ns) == 0
	})
	m.requireSame(t)
}

func scale(t *testing.T, c *kubetest.Cluster, ns string, replicas int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// readyMembers counts the ready endpoints of a service.
func (m *mirror) readyMembers(ns, service string) int {
	n := 0
	for o := range m.store.Snapshot().All(model.KindEndpointSlice) {
		s := o.(*model.EndpointSlice)
		if s.Namespace != ns || s.Service != service {
			continue
		}
		for _, e := range s.Members {
			if e.Ready {
				n++
			}
		}
	}
	return n
}

// TestMistakesInACluster checks objects that the API server accepts and the mesh does not: the last valid state stays in
// force, and the problem is reported.
func TestMistakesInACluster(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	const route = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [web]
  http: [{match: [{uri: {regex: "%s"}}], route: [{destination: {host: web}}]}]
`
	c.Apply(t, ns, fmt.Sprintf(route, "/a.*"))
	m := follow(t, c)
	m.ready(t)
	good := m.get(model.KindVirtualService, ns, "web")
	require.NotNil(t, good)
	c.Apply(t, ns, fmt.Sprintf(route, "("))
	m.eventually(t, "a problem", func() bool { return len(problemsOf(m.Problems(), ns)) == 1 })
	p := problemsOf(m.Problems(), ns)[0]
	require.Equal(t, "spec.http[0].match[0].uri.regex", p.Field)
	require.Same(t, good, m.get(model.KindVirtualService, ns, "web"))
	c.Apply(t, ns, fmt.Sprintf(route, "/b.*"))
	m.eventually(t, "no problem", func() bool { return len(problemsOf(m.Problems(), ns)) == 0 })
	m.eventually(t, "the new route", func() bool { return m.get(model.KindVirtualService, ns, "web") != good })
}

func problemsOf(all []problem.Problem, ns string) []problem.Problem {
	var out []problem.Problem
	for _, p := range all {
		if p.Object.Namespace == ns {
			out = append(out, p)
		}
	}
	return out
}

// TestMeasuresTheAPIServer checks that each write of the heartbeat is received again.
func TestMeasuresTheAPIServer(t *testing.T) {
	c := kubetest.Shared(t)
	c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n")
	m := follow(t, c)
	m.eventually(t, "delays", func() bool { return len(m.counts.delay(DelayWatch)) > 3 && len(m.counts.delay(DelayWrite)) > 3 })
	for _, d := range m.counts.delay(DelayWatch) {
		require.Positive(t, d)
	}
	ns := c.Namespace(t)
	m.ready(t)
	c.Apply(t, ns, shop)
	m.eventually(t, "the delay of objects", func() bool { return len(m.counts.delay(DelayObject)) > 0 })
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, change := range m.changes {
		if change.Key == (model.Key{Kind: model.KindService, Namespace: ns, Name: "web"}) {
			require.WithinDuration(t, change.Event.Observed, change.Event.Committed, time.Minute)
		}
	}
}

// TestMeshConfigInACluster checks that of all ConfigMaps only the mesh's configuration is read.
func TestMeshConfigInACluster(t *testing.T) {
	c := kubetest.Shared(t)
	c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n")
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {mesh: 'accessLogFile: %s'}\n"
	c.Apply(t, "istio-system", fmt.Sprintf(config, "istio", "/dev/stdout"))
	c.Apply(t, "istio-system", fmt.Sprintf(config, "other", "/dev/stdout"))
	t.Cleanup(func() {
		_ = c.Client.CoreV1().ConfigMaps("istio-system").Delete(context.Background(), "istio", metav1.DeleteOptions{})
	})
	m := follow(t, c)
	m.ready(t)
	require.Equal(t, 1, m.store.Snapshot().Len(model.KindMeshConfig))
	c.Apply(t, "istio-system", fmt.Sprintf(config, "istio", "/dev/stderr"))
	m.eventually(t, "the change", func() bool {
		o, _ := m.get(model.KindMeshConfig, "istio-system", "istio").(*model.MeshConfig)
		return o != nil && *o.AccessLogFile == "/dev/stderr"
	})
}

// TestMeshConfigOfARevision checks that a control plane reads the ConfigMap that it is told to, under the key of all.
func TestMeshConfigOfARevision(t *testing.T) {
	c := kubetest.Shared(t)
	c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n")
	c.Apply(t, "istio-system", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio-blue}\ndata: {mesh: 'accessLogFile: /dev/blue'}\n")
	client, err := Connect(Cluster{Kubeconfig: c.Kubeconfig()})
	require.NoError(t, err)
	defer client.Close()
	content, err := client.Read(t.Context(), config.Decoder{MeshConfigMap: "istio-blue"}, "istio-system")
	require.NoError(t, err)
	i := slices.IndexFunc(content.Objects, func(o model.Object) bool { return o.Metadata().Key.IsMeshConfig() })
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, "/dev/blue", *content.Objects[i].(*model.MeshConfig).AccessLogFile)
}
