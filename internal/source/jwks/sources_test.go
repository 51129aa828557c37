package jwks

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/safedial"
	"github.com/moonsail/moonsail/test/await"
)

// full returns a Cache with room for one more fetch, and two that are due.
func full(t *testing.T) *Cache {
	t.Helper()
	k := New(store.NewIntake(), store.New().Snapshot, safedial.Dialer{AllowLoopback: true}, slog.New(slog.DiscardHandler))
	close(k.settled)
	k.running = together - 1
	now := time.Now()
	k.sources["a"], k.sources["z"] = &source{due: now.Add(-time.Second)}, &source{due: now.Add(-time.Minute)}
	return k
}

func TestWhatHasWaitedForLongestIsFetchedFirst(t *testing.T) {
	k := full(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.fetchDue(ctx)
	require.Equal(t, "z", await.From(t, k.results).name)
	require.False(t, k.sources["a"].fetching, "there is no room for it")
}

// TestDoesNotPollWithoutRoom checks that a due fetch waits for the end of another one.
func TestDoesNotPollWithoutRoom(t *testing.T) {
	k := full(t)
	require.Equal(t, time.Millisecond, k.next())
	k.running = together
	require.Equal(t, time.Hour, k.next())
}

// asks makes a namespace refer to a number of sources.
func asks(namespace string, sources int) store.Event {
	m := model.Meta{Key: model.Key{Kind: model.KindRequestAuthentication, Namespace: namespace, Name: "a"}, ResourceVersion: "1"}
	o := &model.RequestAuthentication{Meta: m}
	for i := range sources {
		o.Rules = append(o.Rules, model.JWTRule{KeysURI: fmt.Sprintf("http://%s/%d", namespace, i)})
	}
	return store.Event{Key: m.Key, Object: o}
}

// TestNamespacesKeepTheirShares checks that a namespace takes neither the places nor the turns of others.
func TestNamespacesKeepTheirShares(t *testing.T) {
	s := store.New()
	k := New(store.NewIntake(), s.Snapshot, safedial.Dialer{AllowLoopback: true}, slog.New(slog.DiscardHandler))
	close(k.settled)
	s.Apply([]store.Event{asks("a-lot", maxSources)})
	k.look()
	require.Len(t, k.sources, maxSources)
	s.Apply([]store.Event{asks("shop", 2)})
	k.look()
	require.Len(t, k.sources, maxSources)
	require.NotNil(t, k.sources["http://shop/0"])
	require.NotNil(t, k.sources["http://shop/1"])

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.fetchDue(ctx)
	require.Equal(t, map[string]int{"a-lot": together / 2, "shop": 2}, k.busy)
	require.Equal(t, time.Hour, k.next(), "nothing can be begun until a fetch ends")
	for k.running > 0 {
		k.over(await.From(t, k.results))
	}
	require.Empty(t, k.busy)
}

func TestTimeoutsOfRulesAreBounded(t *testing.T) {
	wanted := map[string]*source{}
	want(wanted, &model.JWTRule{KeysURI: "http://a/", Timeout: 1000 * time.Hour})
	want(wanted, &model.JWTRule{KeysURI: "http://b/", Timeout: time.Second})
	require.Equal(t, maxTimeout, wanted["http://a/"].timeout)
	require.Equal(t, time.Second, wanted["http://b/"].timeout)
}
