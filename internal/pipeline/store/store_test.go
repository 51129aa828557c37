package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/await"
)

func service(name, version string) *model.Service {
	return &model.Service{Meta: model.Meta{
		Key:             model.Key{Kind: model.KindService, Namespace: "shop", Name: name},
		ResourceVersion: version,
	}}
}

func put(s *model.Service) Event { return Event{Key: s.Key, Object: s} }

func TestApplyNumbersChanges(t *testing.T) {
	s := New()
	first, changes := s.Apply([]Event{put(service("a", "1")), put(service("b", "1"))})
	require.Equal(t, model.Revision(2), first.Revision)
	require.Len(t, changes, 2)
	require.Nil(t, changes[0].Old)

	second, changes := s.Apply([]Event{put(service("a", "1"))})
	require.Same(t, first, second, "an equal version changes nothing")
	require.Empty(t, changes)

	third, changes := s.Apply([]Event{put(service("a", "2")), {Key: service("b", "").Key}})
	require.Equal(t, model.Revision(3), third.Revision)
	require.Len(t, changes, 2)
	require.Nil(t, changes[1].New)
	require.Equal(t, 1, third.Len(model.KindService))
	require.Equal(t, 2, first.Len(model.KindService), "an old snapshot does not change")
}

func TestApplyIgnoresRemovalOfUnknownObject(t *testing.T) {
	s := New()
	snap, changes := s.Apply([]Event{{Key: service("a", "").Key}})
	require.Empty(t, changes)
	require.Equal(t, model.Revision(1), snap.Revision)
	require.Nil(t, snap.Get(service("a", "").Key))
}

func TestIntakeMergesEvents(t *testing.T) {
	in := NewIntake("file")
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	in.Put(Event{Key: service("a", "").Key, Object: service("a", "1"), Observed: early})
	in.Put(Event{Key: service("b", "").Key, Object: service("b", "1"), Observed: early})
	in.Put(Event{Key: service("a", "").Key, Object: service("a", "2"), Observed: late})
	require.Equal(t, 2, in.Depth())

	events := in.Take()
	require.Len(t, events, 2)
	require.Equal(t, "2", events[0].Object.Metadata().ResourceVersion)
	require.Equal(t, early, events[0].Observed, "the oldest time counts")
	require.Empty(t, in.Take())

	require.False(t, in.IsSynced())
	in.Synced("file")
	require.True(t, in.IsSynced())
	await.From(t, in.Ready())
}
