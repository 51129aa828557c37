package kube

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/kubetest"
)

const patience = 2 * time.Minute

// mirror is a source with a store that applies its events.
type mirror struct {
	*Source
	counts *counts
	store  *store.Store
	synced chan struct{}

	mu      sync.Mutex // guards changes
	changes []store.Change
}

// follow runs a source on a cluster until the test ends.
func follow(t *testing.T, c *kubetest.Cluster) *mirror {
	t.Helper()
	return followWith(t, c.Kubeconfig())
}

func followWith(t *testing.T, kubeconfig string) *mirror {
	t.Helper()
	client, err := Connect(Cluster{Kubeconfig: kubeconfig, UserAgent: "moonsail-test"})
	require.NoError(t, err)
	in := store.NewIntake(SourceName)
	m := &mirror{counts: newCounts(), store: store.New(), synced: make(chan struct{})}
	m.Source = &Source{
		Client: client, Decoder: config.Decoder{}, RootNamespace: "istio-system", Intake: in, Meter: m.counts,
		Log: slog.New(slog.DiscardHandler), Identity: t.Name(), Heartbeat: 50 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	running.Go(func() { m.take(ctx, in) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		client.Close()
	})
	return m
}

func (m *mirror) take(ctx context.Context, in *store.Intake) {
	for reported := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-in.Ready():
		}
		synced := in.IsSynced()
		_, changes := m.store.Apply(in.TakeAll())
		m.mu.Lock()
		m.changes = append(m.changes, changes...)
		m.mu.Unlock()
		if synced && !reported {
			reported = true
			close(m.synced)
		}
	}
}

// ready waits until everything has been listed.
func (m *mirror) ready(t *testing.T) {
	t.Helper()
	select {
	case <-m.synced:
	case <-time.After(patience):
		require.Fail(t, "not synced", "%v", m.Waiting())
	}
}

func (m *mirror) eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	require.Eventually(t, look, patience, 5*time.Millisecond, what)
}

func (m *mirror) get(kind model.Kind, ns, name string) model.Object {
	return m.store.Snapshot().Get(model.Key{Kind: kind, Namespace: ns, Name: name})
}

// count is the number of objects of a kind in a namespace.
func (m *mirror) count(kind model.Kind, ns string) int {
	n := 0
	for o := range m.store.Snapshot().All(kind) {
		if o.Metadata().Namespace == ns {
			n++
		}
	}
	return n
}

// requireSame waits until the store equals a new list of everything.
func (m *mirror) requireSame(t *testing.T) {
	t.Helper()
	var diff string
	ok := assertEventually(func() bool {
		diff = m.diff(t)
		return diff == ""
	})
	require.True(t, ok, diff)
}

func assertEventually(look func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if look() {
			return true
		}
		<-time.After(50 * time.Millisecond)
	}
	return false
}

func (m *mirror) diff(t *testing.T) string {
	client := m.Client
	content, err := client.Read(t.Context(), m.Decoder, m.RootNamespace)
	if err != nil {
		return err.Error()
	}
	snap := m.store.Snapshot()
	want := map[model.Key]bool{}
	for _, o := range content.Objects {
		key := o.Metadata().Key
		want[key] = true
		if got := snap.Get(key); got == nil || !alike(got, o) {
			return fmt.Sprintf("%s: have %+v, want %+v", key, got, o)
		}
	}
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			if !want[o.Metadata().Key] {
				return fmt.Sprintf("%s is gone", o.Metadata().Key)
			}
		}
	}
	return ""
}

// alike compares everything except resource versions: a new version alone is not a change.
func alike(a, b model.Object) bool {
	m := b.Metadata()
	m.ResourceVersion = a.Metadata().ResourceVersion
	return reflect.DeepEqual(a, b)
}
