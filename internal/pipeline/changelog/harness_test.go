package changelog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is the time at which changes begin; at(n) is n milliseconds later.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(millis float64) time.Time { return start.Add(time.Duration(millis * float64(ms))) }

func object(kind model.Kind, name string) ChangedObject {
	return ChangedObject{Key: model.Key{Kind: kind, Namespace: "shop", Name: name}, Operation: Updated, ResourceVersion: "7", Observed: start}
}

// logOf makes a log of size changes and a function that returns its lines so far.
func logOf(t *testing.T, size int) (*Log, func() []string) {
	t.Helper()
	var buf bytes.Buffer
	h := slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	l := New(size, slog.New(h), NewMetrics())
	return l, func() []string {
		l.drain()
		return strings.Split(strings.TrimSpace(buf.String()), "\n")
	}
}

// build takes a revision through the engine's stages: 0.1 + 0.3 + 0.2 ms.
func build(l *Log, rev model.Revision, objects ...ChangedObject) {
	l.Begin(rev, objects, start)
	l.Mark(rev, StageStore, at(0.1))
	l.Mark(rev, StageDerive, at(0.4))
	l.Mark(rev, StageTranslate, at(0.6))
	l.Resources(rev, 1, 600)
	l.Resources(rev, 1, 72)
}

func change(t *testing.T, l *Log, rev model.Revision) Change {
	t.Helper()
	c, ok := l.Change(rev)
	require.True(t, ok)
	return c
}
