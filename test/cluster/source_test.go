package cluster

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(kubetest.Main(m)) }

// follow keeps a store up to date with a cluster until the test ends.
func follow(t *testing.T, c *kubetest.Cluster, mesh *model.Mesh) *store.Store {
	t.Helper()
	client, err := kube.Connect(kube.Cluster{Kubeconfig: c.Kubeconfig()})
	require.NoError(t, err)
	in, st := store.NewIntake(kube.SourceName), store.New()
	source := &kube.Source{
		Client: client, Decoder: config.Decoder{Domain: mesh.Domain}, RootNamespace: mesh.RootNamespace,
		Intake: in, Meter: unmetered{}, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = source.Run(ctx) })
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-in.Ready():
				st.Apply(in.TakeAll())
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		client.Close()
	})
	return st
}

// unmetered counts nothing.
type unmetered struct{}

func (unmetered) Event(string, bool, string)         {}
func (unmetered) APIDelay(kube.Delay, time.Duration) {}
