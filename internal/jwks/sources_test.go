package jwks

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// full is a keeper with room for one more fetch, and two that are due.
func full(t *testing.T) *Keeper {
	t.Helper()
	k := New(store.NewIntake(), store.New().Snapshot, slog.New(slog.DiscardHandler))
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
	require.Equal(t, "z", (<-k.results).name)
	require.False(t, k.sources["a"].fetching, "there is no room for it")
}

// TestNobodyLooksWhileThereIsNoRoom: what is due then has to wait for the end of a fetch, which is told.
func TestNobodyLooksWhileThereIsNoRoom(t *testing.T) {
	k := full(t)
	require.Equal(t, time.Millisecond, k.next())
	k.running = together
	require.Equal(t, time.Hour, k.next())
}

func TestTimeoutsOfRulesAreBounded(t *testing.T) {
	k := full(t)
	wanted := map[string]*source{}
	k.want(wanted, &model.JWTRule{KeysURI: "http://a/", Timeout: 1000 * time.Hour})
	k.want(wanted, &model.JWTRule{KeysURI: "http://b/", Timeout: time.Second})
	require.Equal(t, maxTimeout, wanted["http://a/"].timeout)
	require.Equal(t, time.Second, wanted["http://b/"].timeout)
}
