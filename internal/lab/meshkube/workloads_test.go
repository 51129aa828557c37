package meshkube

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	discoveryfake "k8s.io/client-go/kubernetes/typed/discovery/v1/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/test/await"
)

const sliceText = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: mesh, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true, serving: true}}
- {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.0.0.3]}
`

func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	b, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(b))
	return u
}

func sliceFrom(t *testing.T, text string) *discoveryv1.EndpointSlice {
	t.Helper()
	out := &discoveryv1.EndpointSlice{}
	require.NoError(t, yaml.Unmarshal([]byte(text), out))
	return out
}

// holding is a client of an API server that has some objects and reports changes.
func holding(t *testing.T, objects ...runtime.Object) *discoveryfake.FakeDiscoveryV1 {
	t.Helper()
	held := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	for _, o := range objects {
		require.NoError(t, held.Add(o))
	}
	client := &discoveryfake.FakeDiscoveryV1{Fake: &clienttesting.Fake{}}
	client.AddReactor("*", "*", clienttesting.ObjectReaction(held))
	client.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := held.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	return client
}

func TestWatchSlices(t *testing.T) {
	first := sliceFrom(t, sliceText)
	client := holding(t, first)
	in := client.EndpointSlices("mesh")
	c := &Cluster{slices: client}
	seen, done := make(chan Slice, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- c.WatchSlices(ctx, "mesh", func(s Slice) { seen <- s }) }()
	ready := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.3")}
	require.Equal(t, Slice{Name: "web-1", Service: "web", Ready: ready}, await.From(t, seen))
	require.Eventually(t, func() bool { return len(client.Actions()) == 2 }, time.Minute, time.Millisecond, "it watches")

	next := first.DeepCopy()
	next.Endpoints = next.Endpoints[:1]
	_, err := in.Update(ctx, next, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, Slice{Name: "web-1", Service: "web", Ready: ready[:1]}, await.From(t, seen))
	require.NoError(t, in.Delete(ctx, "web-1", metav1.DeleteOptions{}))
	require.Equal(t, Slice{Name: "web-1", Service: "web"}, await.From(t, seen))
	cancel()
	require.ErrorIs(t, await.From(t, done), context.Canceled)
}

func TestRolledOut(t *testing.T) {
	for status, want := range map[string]bool{
		"{observedGeneration: 2, replicas: 3, updatedReplicas: 3, availableReplicas: 3}": true,
		"{observedGeneration: 1, replicas: 3, updatedReplicas: 3, availableReplicas: 3}": false,
		"{observedGeneration: 2, replicas: 4, updatedReplicas: 3, availableReplicas: 3}": false,
		"{observedGeneration: 2, replicas: 3, updatedReplicas: 3, availableReplicas: 2}": false,
		"{}": false,
	} {
		u := objectOf(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: mesh, generation: 2}
spec: {replicas: 3}
status: `+status)
		c := &Cluster{client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, u)}
		done, err := c.RolledOut(t.Context(), "mesh", "web")
		require.NoError(t, err)
		require.Equal(t, want, done, status)
	}
}
