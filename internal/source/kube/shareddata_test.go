package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/test/kubetest"
)

// seenData has what a watch of SharedData reported.
type seenData struct {
	mu      sync.Mutex // guards the rest
	data    string
	version string
	calls   int
}

func (s *seenData) see(data []byte, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data, s.version, s.calls = string(data), version, s.calls+1
}

func (s *seenData) await(t *testing.T, c *kubetest.Cluster, data string) (version string) {
	t.Helper()
	c.Eventually(t, "the watch reports "+data, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if version = s.version; s.calls == 0 || s.data != data {
			return fmt.Errorf("it reports %q", s.data)
		}
		return nil
	})
	return version
}

// TestSharedData writes a ConfigMap with the shipped rights, from two control planes.
func TestSharedData(t *testing.T) {
	c := kubetest.Shared(t)
	roles, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(roles))
	const name = "moonsail-dependencies"
	maps := c.Client.CoreV1().ConfigMaps("istio-system")
	t.Cleanup(func() {
		_ = maps.Delete(context.Background(), name, metav1.DeleteOptions{}) // it may not exist
	})
	changed := errors.New("changed")
	start := func() (*SharedData, *seenData) {
		client, err := Connect(Cluster{Kubeconfig: as(t, c, "istio-system", "moonsail")})
		require.NoError(t, err)
		shared, err := client.SharedData("istio-system", name, "data", func(err error) { t.Errorf("cannot be read: %v", err) }, changed)
		require.NoError(t, err)
		seen := &seenData{}
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { _ = shared.Watch(ctx, seen.see) }) // it cannot fail once it has begun
		t.Cleanup(func() {
			cancel()
			ended.Wait()
			client.Close()
		})
		return shared, seen
	}
	one, seenOne := start()
	two, seenTwo := start()
	require.Empty(t, seenOne.await(t, c, ""))
	require.Empty(t, seenTwo.await(t, c, ""))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, err := one.Write(ctx, []byte("a"), "")
	require.NoError(t, err)
	require.Equal(t, first, seenTwo.await(t, c, "a"))
	_, err = two.Write(ctx, []byte("b"), "")
	require.ErrorIs(t, err, changed, "it exists")
	second, err := two.Write(ctx, []byte("b"), first)
	require.NoError(t, err)
	require.Equal(t, second, seenOne.await(t, c, "b"))
	_, err = one.Write(ctx, []byte("c"), first)
	require.ErrorIs(t, err, changed, "the other one wrote it")

	require.NoError(t, maps.Delete(ctx, name, metav1.DeleteOptions{}))
	require.Empty(t, seenOne.await(t, c, ""))
	_, err = one.Write(ctx, []byte("c"), second)
	require.ErrorIs(t, err, changed, "it was deleted")
}
