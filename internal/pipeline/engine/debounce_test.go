package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

func TestDebounceWaits(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	d := Debounce{After: 5 * time.Second, Max: 12 * time.Second}
	passing := d
	passing.EndpointsPass = true
	for name, tc := range map[string]struct {
		d       Debounce
		now     int
		w       store.Waiting
		seconds int
	}{
		"off":                    {Debounce{Max: time.Second}, 0, store.Waiting{Objects: 1, First: at(0), Last: at(0)}, 0},
		"nothing waits":          {d, 0, store.Waiting{}, 0},
		"one event":              {d, 0, store.Waiting{Objects: 1, First: at(0), Last: at(0)}, 5},
		"quiet for a while":      {d, 3, store.Waiting{Objects: 1, First: at(0), Last: at(0)}, 2},
		"quiet for long enough":  {d, 5, store.Waiting{Objects: 1, First: at(0), Last: at(0)}, 0},
		"another came":           {d, 6, store.Waiting{Objects: 2, First: at(0), Last: at(4)}, 3},
		"the bound is near":      {d, 10, store.Waiting{Objects: 2, First: at(0), Last: at(10)}, 2},
		"the bound is reached":   {d, 12, store.Waiting{Objects: 2, First: at(0), Last: at(12)}, 0},
		"a batch took very long": {d, 110, store.Waiting{Objects: 2, First: at(0), Last: at(110)}, -98},
		"without a bound":        {Debounce{After: 5 * time.Second}, 110, store.Waiting{Objects: 2, First: at(0), Last: at(110)}, 5},
		"endpoints wait too":     {d, 0, store.Waiting{Objects: 2, Endpoints: 1, First: at(0), Last: at(0)}, 5},
		"endpoints pass":         {passing, 0, store.Waiting{Objects: 2, Endpoints: 1, First: at(0), Last: at(0)}, 0},
		"only other kinds wait":  {passing, 0, store.Waiting{Objects: 2, First: at(0), Last: at(0)}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, time.Duration(tc.seconds)*time.Second, tc.d.wait(at(tc.now), tc.w))
		})
	}
}

// gate is a publisher that blocks the engine: a batch ends when the test allows it.
type gate struct {
	began chan model.Revision
	end   chan struct{}
	over  <-chan struct{} // closed when the test ends: nothing blocks any more
}

func (g *gate) Publish(rev model.Revision, _ []*table.Table) {
	select {
	case g.began <- rev:
	case <-g.over:
	}
	select {
	case <-g.end:
	case <-g.over:
	}
}

// TestDebounceMaxCountsDuringABatch checks that events which arrive during a batch, and have waited for
// Max at its end, are not held back again although more events arrive.
func TestDebounceMaxCountsDuringABatch(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	in := store.NewIntake("test")
	// An event that is not due by Max would wait for an hour.
	e := New(Options{Intake: in, Recorder: noRecorder{}, Log: slog.New(slog.DiscardHandler), Debounce: Debounce{After: time.Hour, Max: time.Minute}})
	ctx, cancel := context.WithCancel(context.Background())
	g := &gate{began: make(chan model.Revision), end: make(chan struct{}), over: ctx.Done()}
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx, g) }()
	t.Cleanup(func() { cancel(); await.From(t, ended) })

	in.Put(service("a", 80))
	in.Synced("test")
	first := await.From(t, g.began) // the objects of the start are not held back
	late := service("b", 80)
	late.Observed = time.Now().Add(-2 * time.Minute) // seen during the batch, which took two minutes
	in.Put(late, service("c", 80))
	await.To(t, g.end, struct{}{})
	require.Equal(t, first+1, await.From(t, g.began))
	in.Put(service("d", 80))
	await.To(t, g.end, struct{}{})
	require.Eventually(t, func() bool { return e.Snapshot().Revision == first+1 && in.Depth() == 1 }, time.Minute, time.Millisecond, "the last event is held back")
}
