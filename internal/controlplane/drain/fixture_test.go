package drain

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local"

// fixture is a registry with an engine and proxies that a test controls.
type fixture struct {
	*Registry
	t      *testing.T
	store  *store.Store
	listed []string

	mu        sync.Mutex // guards the fields below
	connected *server.ProxyState
	where     []distribution.ProxySyncStatus
	counted   int // calls of Distribution
	polled    int // calls of Away
	streams   int // proxies that each change concerns, and that a test answers for
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	in := store.NewIntake()
	changes := changelog.New(16, slog.New(slog.DiscardHandler), changelog.NewMetrics())
	f := &fixture{t: t, store: store.New(), Registry: New(in, changes, slog.New(slog.DiscardHandler))}
	f.Proxies, f.ReconnectGrace = f, time.Nanosecond
	f.Lists = func(context.Context, []string) []string { return f.listed }
	return f
}

// Proxy implements Proxies.
func (f *fixture) Proxy(string) (server.ProxyState, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.connected == nil {
		return server.ProxyState{}, false
	}
	return *f.connected, true
}

// ProxyAt implements Proxies.
func (f *fixture) ProxyAt(string) (string, bool) { return "", false }

// Distribution implements Proxies.
func (f *fixture) Distribution(*distribution.Query) []distribution.ProxySyncStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted++
	return f.where
}

// Away implements Proxies.
func (f *fixture) Away(ids []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polled++
	for _, s := range f.where {
		if slices.Contains(ids, s.ID) && s.Position != distribution.StateDisconnected {
			return false
		}
	}
	return true
}

func (f *fixture) setStatus(where ...distribution.ProxySyncStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.where = where
}

// run plays the engine until the test ends: it publishes each batch at once.
func (f *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.notices.intake.Ready():
				f.batch()
			}
		}
	})
	f.t.Cleanup(func() { cancel(); running.Wait() })
}

func (f *fixture) batch() model.Revision {
	snap, changes := f.store.Apply(f.notices.intake.Take())
	if len(changes) == 0 {
		return 0
	}
	var objects []changelog.ChangedObject
	for _, c := range changes {
		objects = append(objects, changelog.ChangedObject{Key: c.Key, Observed: c.Event.Observed})
	}
	f.Changes.Begin(snap.Revision, objects, time.Now())
	f.mu.Lock()
	n := f.streams
	f.mu.Unlock()
	f.Changes.Published(snap.Revision, n, time.Now())
	return snap.Revision
}

func (f *fixture) noticeCount() int { return f.store.Snapshot().Len(model.KindDrainNotice) }

// reply is the result of a request.
type reply struct {
	agentapi.DeregisterResponse
	err error
}

func (f *fixture) ask(q agentapi.DeregisterRequest) <-chan reply {
	f.t.Helper()
	if q.Node == "" {
		q.Node, q.Instance = node, "first"
	}
	b, err := json.Marshal(q)
	require.NoError(f.t, err)
	out := make(chan reply, 1)
	go func() {
		var r reply
		var answer []byte
		if answer, r.err = f.Deregister(context.Background(), b); r.err == nil {
			r.err = json.Unmarshal(answer, &r.DeregisterResponse)
		}
		out <- r
	}()
	return out
}

func at(name string, p distribution.SyncState, reasons ...distribution.Reason) distribution.ProxySyncStatus {
	return distribution.ProxySyncStatus{ID: name, Name: name, Namespace: "shop", Position: p, Reasons: reasons}
}
