package changelog

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		line  Timeline
		want  [NumStages]time.Duration
		total time.Duration
	}{
		{"every stage", Timeline{1 * ms, 3 * ms, 6 * ms, 10 * ms, 15 * ms},
			[NumStages]time.Duration{1 * ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms}, 15 * ms},
		{"no stage", Timeline{never, never, never, never, never}, [NumStages]time.Duration{}, 0},
		{"only stored", Timeline{2 * ms, never, never, never, never}, [NumStages]time.Duration{2 * ms}, 2 * ms},
		{"no proxy concerned", Timeline{1 * ms, 2 * ms, 3 * ms, never, never},
			[NumStages]time.Duration{1 * ms, 1 * ms, 1 * ms}, 3 * ms},
		{"a stage is missing", Timeline{1 * ms, never, 3 * ms, 4 * ms, 5 * ms},
			[NumStages]time.Duration{1 * ms, 0, 2 * ms, 1 * ms, 1 * ms}, 5 * ms},
		{"sent before it was translated everywhere", Timeline{1 * ms, 2 * ms, 9 * ms, 5 * ms, 12 * ms},
			[NumStages]time.Duration{1 * ms, 1 * ms, 7 * ms, 0, 3 * ms}, 12 * ms},
		{"answered before the slowest stage ended", Timeline{1 * ms, 2 * ms, 9 * ms, 5 * ms, 6 * ms},
			[NumStages]time.Duration{1 * ms, 1 * ms, 7 * ms, 0, 0}, 9 * ms},
		{"ends are rounded, not lengths", Timeline{140 * time.Microsecond, 280 * time.Microsecond, 420 * time.Microsecond, never, never},
			[NumStages]time.Duration{100 * time.Microsecond, 200 * time.Microsecond, 100 * time.Microsecond}, 400 * time.Microsecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, total := tc.line.Split(100 * time.Microsecond)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.total, total)
		})
	}
}

func TestSplitAddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var line Timeline
		for i := range line {
			line[i] = time.Duration(rng.Int64N(int64(10*ms))) - ms
		}
		for _, unit := range []time.Duration{1, time.Microsecond, 100 * time.Microsecond, ms} {
			stages, total := line.Split(unit)
			var sum time.Duration
			for _, d := range stages {
				require.GreaterOrEqual(t, d, time.Duration(0))
				sum += d
			}
			require.Equal(t, total, sum, "%v in units of %v", line, unit)
		}
	}
}

func TestTimelineJSON(t *testing.T) {
	b, err := json.Marshal(Timeline{100 * time.Microsecond, 2 * ms, never, 3 * ms, 5*ms + 1234})
	require.NoError(t, err)
	require.JSONEq(t, `{"storeMs":0.1,"deriveMs":1.9,"translateMs":0,"sendMs":1,"ackMs":2.001,"totalMs":5.001}`, string(b))

	var back Timeline
	require.NoError(t, json.Unmarshal(b, &back))
	stages, total := back.Split(time.Microsecond)
	require.Equal(t, 5001*time.Microsecond, total)
	require.Equal(t, 2001*time.Microsecond, stages[StageAck])
}
