package kube

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// TestMissingKinds holds that objects outlive their kind's absence for a while: an API server
// that starts does not know custom kinds yet.
func TestMissingKinds(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"} // nobody is there
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	in := store.NewIntake(SourceName)
	s := &Source{
		Client: &Client{config: config, http: client}, Intake: in, Meter: newCounts(), Log: slog.New(slog.DiscardHandler),
	}
	s.log.log, s.status.log = s.Log, s.Log
	s.status.begin(nil, func() { in.Synced(SourceName) })
	there := served{schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}: {{"v1", "virtualservices"}}}
	watched, now := map[string]*installed{}, time.Now()

	s.install(t.Context(), there, watched, now)
	require.Len(t, watched, 1)
	require.ErrorContains(t, s.Waiting(), "VirtualService", "what the search has found must be listed first")
	k := watched["VirtualService.networking.istio.io"].sink
	require.NoError(t, k.Replace([]any{raw(t, "1", `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`)}, ""))
	require.NoError(t, s.Waiting())
	require.True(t, in.IsSynced())
	require.Len(t, in.Take(), 1)

	s.install(t.Context(), served{}, watched, now.Add(time.Second))
	s.install(t.Context(), there, watched, now.Add(goneAfter))
	s.install(t.Context(), served{}, watched, now.Add(goneAfter+time.Second))
	s.install(t.Context(), served{}, watched, now.Add(2*goneAfter))
	require.Empty(t, in.Take(), "it was there in between")
	s.install(t.Context(), served{}, watched, now.Add(2*goneAfter+time.Second))
	require.Empty(t, watched)
	events := in.Take()
	require.Len(t, events, 1)
	require.Nil(t, events[0].Object)
	require.Equal(t, model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "web"}, events[0].Key)
}
