package kube

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/await"
)

// unconnected is a source whose API server does not run.
func unconnected(t *testing.T) (*Source, *store.Intake) {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	in := store.NewIntake(SourceName)
	s := &Source{
		Client: &Client{config: config, http: client}, Intake: in, Meter: newCounts(), Log: slog.New(slog.DiscardHandler),
	}
	s.log.log, s.status.log = s.Log, s.Log
	return s, in
}

// TestMissingKinds checks that objects outlive their kind's absence for a while: a starting API server does not know custom
// kinds yet.
func TestMissingKinds(t *testing.T) {
	s, in := unconnected(t)
	s.status.begin(nil, func() { in.Synced(SourceName) })
	there := served{schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}: {{"v1", "virtualservices"}}}
	watched, now := map[string]*installed{}, time.Now()

	s.install(t.Context(), there, watched, now)
	require.Len(t, watched, 1)
	require.ErrorContains(t, s.Waiting(), "VirtualService", "found kinds must be listed first")
	k := watched["VirtualService.networking.istio.io"].sink
	require.NoError(t, k.Replace([]any{raw(t, "1", `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`)}, ""))
	require.NoError(t, s.Waiting())
	require.True(t, in.IsSynced())
	require.Len(t, in.Take(), 1)

	s.install(t.Context(), served{}, watched, now.Add(time.Second))
	s.install(t.Context(), there, watched, now.Add(goneAfter))
	s.install(t.Context(), served{}, watched, now.Add(goneAfter+time.Second))
	s.install(t.Context(), served{}, watched, now.Add(2*goneAfter))
	require.Empty(t, in.Take(), "it was present in between")
	s.install(t.Context(), served{}, watched, now.Add(2*goneAfter+time.Second))
	require.Empty(t, watched)
	events := in.Take()
	require.Len(t, events, 1)
	require.Nil(t, events[0].Object)
	require.Equal(t, model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "web"}, events[0].Key)
}

// TestOtherVersions checks that a kind is followed from one version to another, with its objects. Only objects that differ
// in the other version are changes.
func TestOtherVersions(t *testing.T) {
	s, in := unconnected(t)
	s.status.begin(nil, func() {})
	having := func(versions ...servedVersion) served {
		return served{schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}: versions}
	}
	old, now := servedVersion{"v1beta1", "virtualservices"}, servedVersion{"v1", "virtualservices"}
	watched := map[string]*installed{}
	s.install(t.Context(), having(old), watched, time.Now())
	w := watched["VirtualService.networking.istio.io"]
	const spec = `{"hosts":["web"],"http":[{"route":[{"destination":{"host":"web"}}]}]}`
	other := raw(t, "2", spec)
	other.Name, other.document = "other", bytes.ReplaceAll(other.document, []byte(`"name":"web"`), []byte(`"name":"other"`))
	require.NoError(t, w.sink.Replace([]any{raw(t, "1", spec), other}, ""))
	require.Len(t, in.Take(), 2)
	s.install(t.Context(), having(old), watched, time.Now())
	require.Equal(t, "v1beta1", w.sink.resource.version)

	ended := w.ended
	s.install(t.Context(), having(old, now), watched, time.Now())
	await.From(t, ended)
	require.Same(t, w, watched["VirtualService.networking.istio.io"])
	require.Equal(t, "v1", w.sink.resource.version, "the preferred version")
	require.Empty(t, in.Take(), "all stays in force")
	// That version has one more field.
	require.NoError(t, w.sink.Replace([]any{raw(t, "1", strings.Replace(spec, `"route"`, `"timeout":"3s","route"`, 1)), other}, ""))
	events := in.Take()
	require.Len(t, events, 1)
	require.Equal(t, "web", events[0].Key.Name)
	s.install(t.Context(), served{}, watched, time.Now())
	s.install(t.Context(), served{}, watched, time.Now().Add(goneAfter))
	require.Len(t, in.Take(), 2)
}

// TestUnservedKinds checks that an installed kind that is not served any more is a failure. It is logged once, and not while
// an API server starts.
func TestUnservedKinds(t *testing.T) {
	var text bytes.Buffer
	s := &status{log: slog.New(slog.NewTextHandler(&text, nil))}
	s.begin(nil, func() {})
	lost := apierrors.NewNotFound(schema.GroupResource{}, "virtualservices")
	s.record("VirtualService", lost)
	require.Error(t, s.failing["VirtualService"].err)
	require.Empty(t, text.String())
	since := s.failing["VirtualService"].since
	s.record("VirtualService", lost)
	require.Equal(t, since, s.failing["VirtualService"].since, "it fails since the first failure")
	require.Equal(t, []KindHealth{{Kind: "VirtualService", Failing: since, Error: lost.Error()}}, s.health())
	for range 2 {
		s.unknown("VirtualService", lost, time.Now().Add(unservedAfter))
	}
	require.Equal(t, 1, strings.Count(text.String(), "does not serve"))
	s.record("VirtualService", nil)
	require.Empty(t, s.failing)
	require.Empty(t, s.unserved)
	require.Zero(t, s.health()[0].Failing)
	require.NotZero(t, s.health()[0].Answered)
	s.forget("VirtualService")
	require.Empty(t, s.health())
}
