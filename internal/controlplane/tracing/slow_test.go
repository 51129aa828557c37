package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/test/await"
)

// counted counts results of traces.
type counted struct {
	mu                      sync.Mutex // guards the fields
	dropped, exported, lost int
}

func (c *counted) TraceDropped() { c.mu.Lock(); c.dropped++; c.mu.Unlock() }

func (c *counted) Spans(n int, exported bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if exported {
		c.exported += n
	} else {
		c.lost += n
	}
}

// stuck is a collector that answers when the test says so.
type stuck struct {
	asked  chan struct{}
	answer chan error
}

func (s *stuck) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	select {
	case s.asked <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-s.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*stuck) Shutdown(context.Context) error { return nil }

// TestSlowCollectorDoesNotBlock checks that what does not fit the queue is dropped and counted, and that
// the end does not wait for a collector without an answer.
func TestSlowCollectorDoesNotBlock(t *testing.T) {
	out, m := &stuck{make(chan struct{}), make(chan error)}, &counted{}
	e := newExporter(out, m, slog.New(slog.DiscardHandler))
	stop := run(e)
	one := changelog.Trace{Change: changelog.Change{Timeline: changelog.Timeline{-1, -1, -1, -1, -1}}} // one span
	e.Trace(one)
	await.From(t, out.asked)
	for range maxQueued + 3 {
		e.Trace(one) // it returns
	}
	require.Equal(t, 3, m.dropped)
	out.answer <- errors.New("no")
	await.From(t, out.asked) // the next request
	stop()
	require.Zero(t, m.exported)
	require.Equal(t, maxQueued+1+3, m.lost+m.dropped, "each is a span here, and is accounted for")
}

// TestSlowestAnswersAreKept checks that the trace of a change for many proxies has the last ones.
func TestSlowestAnswersAreKept(t *testing.T) {
	traces := make(chan changelog.Trace, 1)
	l := newLog(changelog.NewMetrics(), tracerFunc(func(t changelog.Trace) { traces <- t }))
	l.Begin(1, []changelog.ChangedObject{{}}, start)
	l.Published(1, 200, at(1))
	for i := range 200 {
		outcome := distribution.ACKed
		if i%2 == 1 {
			outcome = distribution.NACKed
		}
		when := at(float64(2 + (i*7)%200))
		l.RecordSettlement(distribution.Settlement{Proxy: &model.Proxy{}, From: 0, To: 1, Outcome: outcome, At: when})
		l.Settled(0, 1, outcome, when)
	}
	var acked, refused []time.Time
	for _, a := range await.From(t, traces).Answers {
		if a.Outcome == distribution.ACKed {
			acked = append(acked, a.At)
		} else {
			refused = append(refused, a.At)
		}
	}
	require.Equal(t, []time.Time{at(194), at(196), at(198), at(200)}, acked)
	require.Len(t, refused, 8)
}

type tracerFunc func(changelog.Trace)

func (f tracerFunc) Trace(t changelog.Trace) { f(t) }
