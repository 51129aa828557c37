package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/test/kubetest"
)

// web is a Deployment of pods and its Service.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web, ports: [{name: http, containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
`

// webPod is a pod of the Service web, with annotations.
const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: 3600
  containers: [{name: web, image: web, ports: [{name: http, containerPort: 8080}]}]
`

const webService = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
`

// ready returns the addresses of ready endpoints, sorted.
func ready(endpoints map[string]discoveryv1.Endpoint) (list []string) {
	for a, e := range endpoints {
		if *e.Conditions.Ready {
			list = append(list, a)
		}
	}
	slices.Sort(list)
	return list
}

// podIPs returns the addresses of the pods that run and are not being deleted, sorted.
func podIPs(ctx context.Context, c *kubetest.Cluster, ns string) (list []string, err error) {
	pods, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			list = append(list, p.Status.PodIP)
		}
	}
	slices.Sort(list)
	return list, nil
}

// waitReady waits until the Service web has exactly count pods, and returns their addresses.
func waitReady(t *testing.T, c *kubetest.Cluster, ns string, count int) (ips []string) {
	t.Helper()
	c.Eventually(t, "ready endpoints", func(ctx context.Context) error {
		endpoints, err := c.Endpoints(ctx, ns, "web")
		if err != nil {
			return err
		}
		if ips, err = podIPs(ctx, c, ns); err != nil {
			return err
		}
		if len(ips) != count || !slices.Equal(ips, ready(endpoints)) || len(endpoints) != count {
			return fmt.Errorf("pods are %v, endpoints %v, want %d", ips, slices.Sorted(maps.Keys(endpoints)), count)
		}
		return nil
	})
	return ips
}

func TestDeploymentHasEndpoints(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, fmt.Sprintf(web, 4))
	ips := waitReady(t, c, ns, 4)

	nodes := map[string]bool{}
	endpoints, err := c.Endpoints(t.Context(), ns, "web")
	require.NoError(t, err)
	for _, ip := range ips {
		require.True(t, netip.MustParsePrefix("10.244.0.0/16").Contains(netip.MustParseAddr(ip)), ip)
		e := endpoints[ip]
		require.Equal(t, "Pod", e.TargetRef.Kind)
		require.Regexp(t, `^zone-[1-3]$`, *e.Zone)
		nodes[*e.NodeName] = true
	}
	require.Len(t, nodes, 3, "four pods are on all three nodes")

	svc, err := c.Client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, netip.MustParsePrefix("10.96.0.0/16").Contains(netip.MustParseAddr(svc.Spec.ClusterIP)), svc.Spec.ClusterIP)
}

// watchSlice watches the only EndpointSlice of a namespace. The returned function returns the lowest number of ready
// endpoints since.
func watchSlice(t *testing.T, c *kubetest.Cluster, ns string) func() int {
	t.Helper()
	now := func() (string, *discoveryv1.EndpointSlice) {
		list, err := c.Client.DiscoveryV1().EndpointSlices(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		return list.ResourceVersion, &list.Items[0]
	}
	version, first := now()
	w, err := c.Client.DiscoveryV1().EndpointSlices(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	require.NoError(t, err)
	return func() int {
		defer w.Stop()
		_, last := now()
		n := readyIn(first)
		for e := range w.ResultChan() {
			slice, ok := e.Object.(*discoveryv1.EndpointSlice)
			require.True(t, ok, "%+v", e.Object)
			if n = min(n, readyIn(slice)); slice.ResourceVersion == last.ResourceVersion {
				break
			}
		}
		return n
	}
}

func readyIn(slice *discoveryv1.EndpointSlice) (count int) {
	for _, e := range slice.Endpoints {
		if *e.Conditions.Ready {
			count++
		}
	}
	return count
}

func TestRollingRestart(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, fmt.Sprintf(web, 3))
	before := waitReady(t, c, ns, 3)
	fewest := watchSlice(t, c, ns)

	restart := `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`
	_, err := c.Client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(restart), metav1.PatchOptions{})
	require.NoError(t, err)
	c.Eventually(t, "the end of the rollout", func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < 3 || d.Status.Replicas > 3) {
			err = fmt.Errorf("status is %+v", d.Status)
		}
		return err
	})
	after := waitReady(t, c, ns, 3)
	for _, ip := range after {
		require.NotContains(t, before, ip, "a pod's address is not used again at once")
	}
	require.Equal(t, 3, fewest(), "a quarter of three pods that may be missing is none")
}

// endpoint waits until the only endpoint of web is as wanted.
func endpoint(t *testing.T, c *kubetest.Cluster, ns, address string, ready, serving, terminating bool) {
	t.Helper()
	c.Eventually(t, fmt.Sprintf("endpoint %s ready=%t serving=%t terminating=%t", address, ready, serving, terminating), func(ctx context.Context) error {
		endpoints, err := c.Endpoints(ctx, ns, "web")
		if err != nil {
			return err
		}
		for a, e := range endpoints {
			got := e.Conditions
			if a == address && *got.Ready == ready && *got.Serving == serving && *got.Terminating == terminating {
				return nil
			}
		}
		return fmt.Errorf("there are %v", endpoints)
	})
}

// annotate changes an annotation of the pod web-1.
func annotate(t *testing.T, c *kubetest.Cluster, ns, annotation, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	_, err := c.Client.CoreV1().Pods(ns).Patch(t.Context(), "web-1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// TestDeletedPodTerminates also uses a loopback address, which Kubernetes itself refuses.
func TestDeletedPodTerminates(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, webService)
	c.Apply(t, ns, fmt.Sprintf(webPod, kubetest.AnnotationIP+": 127.0.10.3, "+kubetest.AnnotationStopAfter+": 1h"))
	endpoint(t, c, ns, "127.0.10.3", true, true, false)

	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	endpoint(t, c, ns, "127.0.10.3", false, true, true)
	annotate(t, c, ns, kubetest.AnnotationReady, "false")
	endpoint(t, c, ns, "127.0.10.3", false, false, true)

	annotate(t, c, ns, kubetest.AnnotationStopAfter, "0s")
	c.Eventually(t, "the pod's end", func(ctx context.Context) error {
		endpoints, err := c.Endpoints(ctx, ns, "web")
		if err == nil && len(endpoints) > 0 {
			err = errors.New("its endpoint is still there")
		}
		return err
	})
	c.Eventually(t, "no pods", func(ctx context.Context) error {
		pods, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("there are %v", pods.Items)
		}
		return err
	})
}

func TestReadinessFollowsTheAnnotation(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, webService)
	c.Apply(t, ns, fmt.Sprintf(webPod, kubetest.AnnotationIP+": 10.9.8.7, "+kubetest.AnnotationReady+`: "false"`))
	endpoint(t, c, ns, "10.9.8.7", false, false, false)
	annotate(t, c, ns, kubetest.AnnotationReady, "true")
	endpoint(t, c, ns, "10.9.8.7", true, true, false)
	annotate(t, c, ns, kubetest.AnnotationReady, "false")
	endpoint(t, c, ns, "10.9.8.7", false, false, false)
}

func TestReadinessGate(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, webService)
	c.Apply(t, ns, `
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}, annotations: {kubelet.moonsail.dev/ip: 10.9.8.6}}
spec:
  readinessGates: [{conditionType: moonsail.dev/configured}]
  containers: [{name: web, image: web, ports: [{name: http, containerPort: 8080}]}]
`)
	endpoint(t, c, ns, "10.9.8.6", false, false, false)
	patch := `{"status":{"conditions":[{"type":"moonsail.dev/configured","status":"True"}]}}`
	_, err := c.Client.CoreV1().Pods(ns).Patch(t.Context(), "web-1", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	endpoint(t, c, ns, "10.9.8.6", true, true, false)
}

func TestDualStackService(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, fmt.Sprintf(web, 1))
	c.Apply(t, ns, `
apiVersion: v1
kind: Service
metadata: {name: both}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80}]}
`)
	c.Eventually(t, "an endpoint of each family", func(ctx context.Context) error {
		endpoints, err := c.Endpoints(ctx, ns, "both")
		if err == nil && len(ready(endpoints)) != 2 {
			err = fmt.Errorf("there are %v", endpoints)
		}
		return err
	})
}
