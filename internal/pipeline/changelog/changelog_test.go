package changelog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/test/await"
)

func TestOneChange(t *testing.T) {
	l, lines := logOf(t, 8)
	build(l, 42, object(model.KindVirtualService, "reviews"))
	require.Equal(t, Building, change(t, l, 42).State)

	l.Published(42, 3, at(0.7))
	l.Sent(42, at(1.2))
	l.Sent(42, at(1.0)) // another stream was first, and reports later
	l.Settled(41, 42, distribution.ACKed, at(3.1))
	l.Settled(41, 42, distribution.NotConcerned, at(0.8))
	require.Equal(t, Distributing, change(t, l, 42).State)
	require.Equal(t, 1, change(t, l, 42).Proxies.Waiting())
	l.Settled(41, 42, distribution.ACKed, at(2.0))

	c := change(t, l, 42)
	require.Equal(t, Distributed, c.State)
	require.Equal(t, Proxies{Concerned: 3, Acked: 2, NotConcerned: 1}, c.Proxies)
	require.Equal(t, Times{Stored: at(0.1), Derived: at(0.4), Translated: at(0.6), Published: at(0.7), FirstSent: at(1.0), LastAcked: at(3.1)}, c.Times)
	require.Equal(t, 2, c.Resources)
	require.EqualValues(t, 672, c.Bytes)
	require.False(t, c.Superseded)
	require.Equal(t, []string{`level=INFO msg="change distributed" rev=42 objects=VirtualService/shop/reviews store=0.1ms derive=0.3ms ` +
		`translate=0.2ms send=0.4ms ack=2.1ms total=3.1ms resources=2 bytes=672 proxies=2/2`}, lines())
}

func TestNoProxyConcerned(t *testing.T) {
	l, lines := logOf(t, 8)
	build(l, 1, object(model.KindPod, "a"))
	l.Published(1, 0, at(0.7))
	c := change(t, l, 1)
	require.Equal(t, Distributed, c.State)
	require.True(t, c.Times.LastAcked.IsZero())
	require.Contains(t, lines()[0], "send=0.0ms ack=0.0ms total=0.6ms")
}

func TestNackAndGone(t *testing.T) {
	l, lines := logOf(t, 8)
	build(l, 1, object(model.KindService, "a"))
	l.Published(1, 3, at(1))
	l.Sent(1, at(1))
	l.Settled(0, 1, distribution.ACKed, at(2))
	l.Settled(0, 1, distribution.NACKed, at(4)) // a refusal is an answer: it ends the clock
	l.Settled(0, 1, distribution.Gone, at(900)) // a disconnected stream is no answer: it does not
	c := change(t, l, 1)
	require.Equal(t, Distributed, c.State)
	require.Equal(t, at(4), c.Times.LastAcked)
	require.Equal(t, "1/2 (1 refused) (1 gone)", c.Proxies.String())
	line := lines()[0]
	require.Contains(t, line, "level=WARN")
	require.Contains(t, line, "total=4.0ms")
	require.Contains(t, line, "proxies=1/2 nacked=1 gone=1")
}

func TestSuperseded(t *testing.T) {
	l, lines := logOf(t, 8)
	build(l, 1, object(model.KindService, "a"))
	build(l, 2, object(model.KindService, "a"))
	l.Published(1, 1, at(1))
	l.Published(2, 1, at(2))
	l.Sent(2, at(3)) // the stream was busy; this response contains both
	l.Settled(0, 2, distribution.ACKed, at(5))

	c := change(t, l, 1)
	require.True(t, c.Superseded)
	require.Equal(t, at(3), c.Times.FirstSent)
	require.Equal(t, Distributed, c.State)
	require.False(t, change(t, l, 2).Superseded)
	require.Len(t, lines(), 2)
}

func TestSettledBeforePublished(t *testing.T) {
	l, lines := logOf(t, 8)
	build(l, 1, object(model.KindService, "a"))
	l.Sent(1, at(0.5)) // reads the table as soon as it is committed
	l.Settled(0, 1, distribution.ACKed, at(0.6))
	require.Equal(t, Building, change(t, l, 1).State)
	l.Published(1, 1, at(0.7))
	require.Equal(t, Distributed, change(t, l, 1).State)
	require.Len(t, lines(), 1)
}

func TestDistributedOnce(t *testing.T) {
	l, lines := logOf(t, 8)
	build(l, 1, object(model.KindService, "a"))
	l.Published(1, 1, at(1))
	l.Published(1, 1, at(1))
	l.Settled(0, 1, distribution.ACKed, at(2))
	l.Settled(0, 1, distribution.ACKed, at(3)) // a caller that breaks the invariant must not cause a second line
	require.Len(t, lines(), 1)
}

func TestRingForgetsOldest(t *testing.T) {
	l, lines := logOf(t, 4)
	for rev := model.Revision(1); rev <= 6; rev++ {
		build(l, rev, object(model.KindService, fmt.Sprint(rev)))
		l.Published(rev, min(1, int(rev)%2), at(1)) // odd ones wait for a proxy
	}
	_, ok := l.Change(2)
	require.False(t, ok)
	var revs []model.Revision
	for c := range l.Changes() {
		revs = append(revs, c.Revision)
	}
	require.Equal(t, []model.Revision{6, 5, 4, 3}, revs)

	got := lines()
	require.Len(t, got, 4) // 2, 4, 6 and, when it was forgotten, 1
	require.True(t, slices.ContainsFunc(got, func(s string) bool {
		return strings.Contains(s, `"change never fully distributed" rev=1`) && strings.Contains(s, "waiting=1")
	}), got)

	// A stream that settles late settles only the revisions that are still in the ring.
	l.Settled(0, 1<<40, distribution.ACKed, at(9))
	require.Equal(t, Distributing, change(t, l, 3).State)
	l.Settled(0, 6, distribution.ACKed, at(9))
	require.Equal(t, Distributed, change(t, l, 3).State)
}

func TestLargeBatchIsBounded(t *testing.T) {
	l, _ := logOf(t, 4)
	objects := make([]ChangedObject, 5000)
	for i := range objects {
		objects[i] = object(model.KindPod, fmt.Sprint(i))
	}
	l.Begin(1, objects, start)
	c := change(t, l, 1)
	require.Len(t, c.Objects, maxObjects)
	require.Equal(t, 5000, c.ObjectCount)
	require.Equal(t, "Pod/shop/0,Pod/shop/1,+4998", c.Summary(2))
}

func TestUnknownRevisions(t *testing.T) {
	l, _ := logOf(t, 4)
	l.Mark(9, StageStore, at(1))
	l.Resources(9, 1, 1)
	l.Published(9, 1, at(1))
	l.Sent(9, at(1))
	l.Settled(0, 9, distribution.ACKed, at(1))
	for range l.Changes() {
		t.Fatal("an empty log has no changes")
	}
}

// TestManyStreams settles many revisions by many streams at the same time, as a server does, while other
// goroutines read. Each change must be logged exactly once, with every stream counted.
func TestManyStreams(t *testing.T) {
	const streams, revisions = 64, 200
	l, lines := logOf(t, revisions)
	published := make([]chan struct{}, revisions+1)
	for i := range published {
		published[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for s := range streams {
		wg.Go(func() {
			for rev := model.Revision(1); rev <= revisions; rev++ {
				if rev%3 != 0 { // every third revision settles without waiting for Published
					<-published[rev]
				}
				l.Sent(rev, at(2))
				l.Settled(rev-1, rev, distribution.Outcome(s%int(numOutcomes)), at(float64(3+s)))
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			for c := range l.Changes() {
				if c.State == Distributed && c.Proxies.Waiting() != 0 {
					t.Errorf("revision %d is distributed, but %+v", c.Revision, c.Proxies)
				}
			}
		}
	})
	for rev := model.Revision(1); rev <= revisions; rev++ {
		build(l, rev, object(model.KindService, "a"))
	}
	for rev := model.Revision(1); rev <= revisions; rev++ {
		l.Published(rev, streams, at(1))
		close(published[rev])
	}
	wg.Wait()
	for c := range l.Changes() {
		require.Equal(t, Distributed, c.State)
		require.Equal(t, Proxies{Concerned: streams, Acked: 16, NotConcerned: 16, Nacked: 16, Gone: 16}, c.Proxies)
		require.Equal(t, at(2), c.Times.FirstSent)
		require.Equal(t, at(3+62), c.Times.LastAcked) // the slowest answer: stream 62 NACKs, stream 63 is gone
	}
	require.Len(t, lines(), revisions)
}

func TestRunWritesAndEnds(t *testing.T) {
	l, _ := logOf(t, 4)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	build(l, 1, object(model.KindService, "a"))
	l.Published(1, 0, at(1))
	cancel()
	await.From(t, done)
	require.Empty(t, l.lines)
}

func TestSlowLoggerBlocksNoStream(t *testing.T) {
	l, lines := logOf(t, 2*pendingLines)
	for rev := model.Revision(1); rev <= 2*pendingLines; rev++ { // Run is not called
		l.Begin(rev, nil, start)
		l.Published(rev, 0, at(1))
	}
	require.Len(t, lines(), pendingLines)
}

func BenchmarkSettled(b *testing.B) {
	l := New(0, slog.New(slog.DiscardHandler), NewMetrics())
	l.Begin(1, []ChangedObject{object(model.KindService, "a")}, start)
	l.Published(1, 1<<30, start)
	now := at(3)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Settled(0, 1, distribution.ACKed, now)
		}
	})
}

func TestLastChange(t *testing.T) {
	l, _ := logOf(t, 4)
	a, b := object(model.KindService, "a"), object(model.KindService, "b")
	build(l, 1, a, b)
	b.Operation, b.ResourceVersion = Deleted, ""
	build(l, 2, b)
	last := func(o ChangedObject) model.Revision {
		c, ok := l.LastChange(o.Key)
		require.Equal(t, ok, c.Revision > 0)
		if ok {
			require.True(t, start.Equal(c.Observed))
			require.True(t, c.Committed.IsZero())
		}
		return c.Revision
	}
	require.Equal(t, model.Revision(1), last(a))
	require.Equal(t, model.Revision(2), last(b))
	require.Zero(t, last(object(model.KindService, "c")))
	require.Equal(t, []model.Key{b.Key}, l.Deleted(model.KindService))
	require.Empty(t, l.Deleted(model.KindPod))
	for rev := model.Revision(3); rev <= 6; rev++ {
		build(l, rev, object(model.KindPod, "p"))
	}
	require.Equal(t, model.Revision(1), last(a), "existing objects stay in the index")
	require.Zero(t, last(b), "deleted objects leave it with their change")
	require.Empty(t, l.Deleted(model.KindService))
	_, remembered := l.Change(1)
	require.False(t, remembered)
}

func TestSupersededIsCountedByProxy(t *testing.T) {
	l, _ := logOf(t, 8)
	for rev := model.Revision(1); rev <= 2; rev++ {
		build(l, rev, object(model.KindService, "a"))
		l.Published(rev, 2, at(1))
	}
	l.Settled(0, 1, distribution.ACKed, at(2))
	l.Settled(1, 2, distribution.ACKed, at(3))
	l.Settled(0, 2, distribution.ACKed, at(3)) // the other proxy receives both together
	require.Equal(t, Proxies{Concerned: 2, Acked: 2, Superseded: 1}, change(t, l, 1).Proxies)
	require.Equal(t, Proxies{Concerned: 2, Acked: 2}, change(t, l, 2).Proxies)
}
