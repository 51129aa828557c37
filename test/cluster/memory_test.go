package cluster

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

var pods = flag.Int("pods", 1000, "Pods of the memory test")

const podsOfService = 40

// TestMemory loads a control plane with Pods that have what Pods of real clusters have: environment, volumes,
// annotations, conditions, managedFields. It logs the memory for each and the peak while all are listed, and limits the
// former.
func TestMemory(t *testing.T) {
	c := kubetest.Start(t)
	ns := c.Namespace(t)
	fill(t, c.Client, ns, *pods)

	heap := heapInUse()
	_, url := serve(t, c)
	began, peak := time.Now(), uint64(0)
	for !ready(t, url) {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapInuse-min(heap, now.HeapInuse))
		<-time.After(10 * time.Millisecond)
	}
	took := time.Since(began)
	kept := heapInUse() - heap
	t.Logf("%d Pods, %d EndpointSlices: ready after %s; heap %.1f MB kept (%.1f kB a Pod), %.1f MB at its peak",
		*pods, *pods/podsOfService, took.Round(10*time.Millisecond), mb(kept), mb(kept)*1000/float64(*pods), mb(peak))
	// In client-go's types, a Pod of this test takes three times as much.
	require.Less(t, int(kept), 3_000_000+4500**pods)
}

func mb(n uint64) float64 { return float64(n) / 1e6 }

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// serve runs a control plane on a cluster until the test ends, and returns the addresses of its streams and its debug
// pages.
func serve(t *testing.T, c *kubetest.Cluster) (xds, url string) {
	t.Helper()
	urls := make(chan [2]string, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = controlplane.Run(ctx, controlplane.Options{
			Kubernetes: &kube.Cluster{Kubeconfig: c.Kubeconfig()}, XDSPlaintextAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
			Mesh: model.DefaultMesh(), Log: slog.New(slog.DiscardHandler),
			Listening: func(xds, http net.Addr) { urls <- [2]string{xds.String(), "http://" + http.String()} },
		})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	at := await.From(t, urls)
	return at[0], at[1]
}

func ready(t *testing.T, url string) bool {
	t.Helper()
	resp, err := http.Get(url + "/ready")
	require.NoError(t, err)
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// fill creates Pods with the state of running ones but without a node, so that no controller changes them, and
// EndpointSlices that list them.
func fill(t *testing.T, client kubernetes.Interface, ns string, n int) {
	t.Helper()
	const writers = 16
	failed := make(chan error, writers)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := w; i < n; i += writers {
				if err := makePod(t.Context(), client, ns, i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	running.Wait()
	select {
	case err := <-failed:
		require.NoError(t, err)
	default:
	}
	for i := 0; i < n; i += podsOfService {
		_, err := client.DiscoveryV1().EndpointSlices(ns).Create(t.Context(), endpoints(i, min(podsOfService, n-i)), metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: service(i)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func service(pod int) string { return fmt.Sprintf("service-%d", pod/podsOfService) }

func address(pod int) string { return fmt.Sprintf("10.%d.%d.%d", 128+pod>>16, pod>>8&255, pod&255) }

func makePod(ctx context.Context, client kubernetes.Interface, ns string, i int) error {
	app := service(i)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-7d9c5b6f4-%05d", app, i),
		Labels: map[string]string{
			"app": app, "version": "v1", "pod-template-hash": "7d9c5b6f4", "service.istio.io/canonical-name": app,
			"service.istio.io/canonical-revision": "v1", "security.istio.io/tlsMode": "istio", "app.kubernetes.io/part-of": "shop",
		},
		Annotations: map[string]string{
			"sidecar.istio.io/status": strings.Repeat("status ", 60), "prometheus.io/scrape": "true",
			"cni.projectcalico.org/containerID": strings.Repeat("0123456789abcdef", 4), "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
		},
	}}
	for _, name := range []string{"app", "istio-proxy"} {
		container := corev1.Container{Name: name, Image: "registry.example.org/shop/" + name + ":1.2.3", Ports: []corev1.ContainerPort{{Name: "http-" + name[:3], ContainerPort: int32(8080 + len(name))}}}
		for v := range 15 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", v), Value: strings.Repeat("value ", 8)})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "moonsail.dev/never"}}
	made, err := client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address(i), PodIPs: []corev1.PodIP{{IP: address(i)}}}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized} {
		made.Status.Conditions = append(made.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	_, err = client.CoreV1().Pods(ns).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

func endpoints(first, n int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service(first) + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service(first)}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	name, port := "http", int32(8080)
	s.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
	for i := first; i < first+n; i++ {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address(i)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-7d9c5b6f4-%05d", service(i), i)},
		})
	}
	return s
}
