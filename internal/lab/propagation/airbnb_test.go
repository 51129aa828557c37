package propagation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/telemetry"
)

// seenChange is a change whose stages end so many milliseconds after its event; -1: never.
func seenChange(rev model.Revision, ends ...int) telemetry.Change {
	c := telemetry.Change{Revision: rev, Observed: time.Now().Add(time.Minute)}
	if ends[telemetry.StageAck] >= 0 {
		c.Proxies.Acked = 1
	}
	for i, ms := range ends {
		c.Timeline[i] = time.Duration(ms) * time.Millisecond
		if ms < 0 {
			c.Timeline[i] = -1
		}
	}
	return c
}

// TestDelays: what concerns no proxy does not count, and stages add up to the whole.
func TestDelays(t *testing.T) {
	r := newRecorder("")
	r.took = 1
	for _, c := range []telemetry.Change{seenChange(1, 1, 3, 6, 10, 15), seenChange(2, 1, 2, 3, -1, -1), seenChange(3, 2, 4, 6, 8, 30)} {
		r.changes[c.Revision] = c
	}
	d := &delays{}
	d.add(r, "a setting")
	require.Equal(t, []float64{15, 30}, d.whole)
	for i := range d.whole {
		sum := 0.0
		for s := range telemetry.Stages {
			sum += d.stages[s][i]
		}
		require.InDelta(t, d.whole[i], sum, 1e-9)
	}
	require.Equal(t, []float64{5, 22}, d.stages[telemetry.StageAck])
	require.Contains(t, d.chart.Title, "a setting")
}

func TestStacked(t *testing.T) {
	c := stacked(Chart{Lines: []ChartLine{{"a", [][2]float64{{0, 1}, {1, 2}}}, {"b", [][2]float64{{0, 3}, {1, 0}}}, {"c", [][2]float64{{0, 5}, {1, 7}}}}})
	require.Equal(t, [][2]float64{{0, 4}, {1, 2}}, c.Lines[1].Points)
	require.Equal(t, [][2]float64{{0, 9}, {1, 9}}, c.Lines[0].Points)
}
