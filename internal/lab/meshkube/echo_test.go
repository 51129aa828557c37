package meshkube

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestEchoHearsOfEachWrite: what comes after it comes when each of its objects was written, and
// not where one was not.
func TestEchoHearsOfEachWrite(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	c := &Cluster{client: client, watcher: client, spaces: map[string]bool{}}
	e, err := c.NewEcho(t.Context(), "mesh", 2)
	require.NoError(t, err)
	defer e.Stop()
	written := func() (n int) {
		for _, a := range client.Actions() {
			if a.Matches("update", "leases") {
				n++
			}
		}
		return n
	}
	for i := range 3 {
		after := 0
		require.NoError(t, e.Before(t.Context(), func() error { after = written(); return nil })())
		require.Equal(t, 2*(i+1), after)
	}
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no quorum") })
	require.ErrorContains(t, e.Before(t.Context(), func() error { return nil })(), "no quorum")
}
