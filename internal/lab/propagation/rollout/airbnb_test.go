package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// seenChange is a change whose stages end so many milliseconds after its event; -1: never.
func seenChange(rev model.Revision, ends ...int) changelog.Change {
	c := changelog.Change{Revision: rev, Observed: time.Now().Add(time.Minute)}
	if ends[changelog.StageAck] >= 0 {
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

// TestDelays checks that changes that concern no proxy do not count, and that the stages add up to the whole.
func TestDelays(t *testing.T) {
	whole, stages := delaysOf([]changelog.Change{seenChange(1, 1, 3, 6, 10, 15), seenChange(2, 1, 2, 3, -1, -1), seenChange(3, 2, 4, 6, 8, 30)})
	require.Equal(t, []float64{15, 30}, whole)
	for i := range whole {
		sum := 0.0
		for s := range changelog.Stages {
			sum += stages[s][i]
		}
		require.InDelta(t, whole[i], sum, 1e-9)
	}
	require.Equal(t, []float64{5, 22}, stages[changelog.StageAck])
}

func TestStacked(t *testing.T) {
	c := stacked(experiment.Chart{Lines: []experiment.ChartLine{
		{Name: "a", Points: [][2]float64{{0, 1}, {1, 2}}}, {Name: "b", Points: [][2]float64{{0, 3}, {1, 0}}}, {Name: "c", Points: [][2]float64{{0, 5}, {1, 7}}},
	}})
	require.Equal(t, [][2]float64{{0, 4}, {1, 2}}, c.Lines[1].Points)
	require.Equal(t, [][2]float64{{0, 9}, {1, 9}}, c.Lines[0].Points)
}

// TestSettings checks that only the default setting has the defect, and that the peer has no settings.
func TestSettings(t *testing.T) {
	o := &Options{Defect: true, Peer: &session.Peer{Name: "istiod", Address: "1.1.1.1:15010"}}
	x := newTrial(&restart{o: o}, throttles, []string{"Pod"})
	e := x.experiment("expedia", "Expedia")
	var names []string
	for _, v := range e.Variants {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{DefaultSetting, "debounce 100 ms, at most 10 s", "push throttle 1", "istiod"}, names)
	require.Len(t, e.Compare, 3)
	require.Equal(t, defectDebounce, x.settings[0].env)
	require.Empty(t, throttles[0].env, "the settings themselves stay")
	require.Contains(t, e.Variants[3].About, "1.1.1.1:15010")
}
