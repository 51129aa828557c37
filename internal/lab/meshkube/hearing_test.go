package meshkube

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// TestStormShadowSendsOneRequestPerEvent checks that a storm's shadow sends one request for each event, as the storm does, and
// is gone at the end.
func TestStormShadowSendsOneRequestPerEvent(t *testing.T) {
	_, m, client, writes := counted(t, meshfiles.Shape{Services: 3, Proxies: 6, Bystanders: 1})
	writes()
	shadow, err := m.StormShadow()
	require.NoError(t, err)
	made := writes()
	require.Len(t, made, 1+2*3, "the namespace, Services and EndpointSlices")
	for i := range m.Services {
		for _, of := range []*meshfiles.Mesh{m, shadow} {
			change, err := of.ReplaceEndpoint(i)
			require.NoError(t, err)
			require.Empty(t, writes(), "nothing is written before its time")
			require.NoError(t, change.Apply())
			for _, a := range client.Actions() {
				require.Equal(t, of == shadow, a.GetNamespace() == meshfiles.Aside)
			}
			require.Equal(t, []string{"update endpointslices"}, writes())
		}
	}
	require.NoError(t, shadow.RemoveServices())
	require.Len(t, writes(), 2*3)
	for gvr := range kinds {
		list, err := client.Resource(gvr).Namespace(meshfiles.Aside).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, list.Items, gvr.Resource)
	}
}

// hearing is a watch whose events the test sends.
func hearing(t *testing.T) (*Hearing, *watch.FakeWatcher) {
	t.Helper()
	client, w := holding(t), watch.NewFakeWithChanSize(4, false)
	client.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(w, nil))
	h, err := (&Cluster{slices: client}).HearSlices(t.Context(), meshfiles.Aside)
	require.NoError(t, err)
	return h, w
}

func sliceNamed(service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
}

// TestHearing checks that the watch returns each write in order, and ignores all other events.
func TestHearing(t *testing.T) {
	h, w := hearing(t)
	for _, service := range []string{"a", "b", "a", "a"} {
		w.Modify(sliceNamed(service))
	}
	for _, service := range []string{"a", "b", "a", "a"} {
		heard, err := h.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, service, heard)
	}
	silent, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Next(silent)
	require.ErrorIs(t, err, context.Canceled, "every object was received")

	w.Delete(sliceNamed("a"))
	_, err = h.Next(t.Context())
	require.EqualError(t, err, "EndpointSlice a-1: want event MODIFIED, got DELETED")
	w.Error(&metav1.Status{Message: "too old resource version"})
	_, err = h.Next(t.Context())
	require.ErrorContains(t, err, "too old resource version")
	h.Stop()
	_, err = h.Next(t.Context())
	require.ErrorContains(t, err, "watch of EndpointSlices: ended by the API server")
}
