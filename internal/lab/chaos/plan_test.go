package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanFollowsFromTheSeed(t *testing.T) {
	s := ShapeOf(12, true)
	require.GreaterOrEqual(t, s.Proxies(), 12)
	first := NewPlan(7, s, time.Minute)
	require.Equal(t, first, NewPlan(7, s, time.Minute))
	require.NoError(t, checkPlan(first, s))
	require.ErrorContains(t, checkPlan([]Action{{What: killAgent, Target: "proxy/c9"}}, s), "action 1 (kill agent proxy/c9): the mesh has no proxy/c9")
	require.ErrorContains(t, checkPlan([]Action{{What: "melt", Target: "proxy/c1"}}, s), "unknown action: copy one of another plan")
	require.NotEqual(t, first, NewPlan(8, s, time.Minute))
	require.True(t, slices.IsSortedFunc(first, func(a, b Action) int { return int(a.At - b.At) }))
}

func TestPlanHasEveryKind(t *testing.T) {
	for _, tt := range []struct {
		name      string
		apiServer bool
	}{{"files", false}, {"API server", true}} {
		t.Run(tt.name, func(t *testing.T) {
			s, seen := ShapeOf(12, tt.apiServer), map[string]int{}
			const length = time.Hour
			busy := map[string]time.Duration{}
			for _, a := range NewPlan(1, s, length) {
				seen[a.What]++
				if a.What == write {
					seen[a.Target[:4]+a.State]++
					continue
				}
				require.LessOrEqual(t, a.At+a.For, time.Duration(faultsUntil*float64(length)), "%s", a)
				if a.What != burst {
					require.GreaterOrEqual(t, a.At, busy[a.Target], "%s: its target has another fault", a)
					busy[a.Target] = a.At + a.For
				}
			}
			for _, k := range faultKinds {
				require.Equal(t, tt.apiServer || !k.apiServer, seen[k.what] > 0, k.what)
			}
			for _, kind := range []string{burst, "routabort", "routinvalid", "routv1", "routnone", "authnone", "authdeny:c1", "authallow:c2", "mtlsstrict", "mtlsnone", "entrnone", "entrb", "endpv2", "refuunacceptable"} {
				require.Positive(t, seen[kind], kind)
			}
		})
	}
}

func TestObjectsOfAllStates(t *testing.T) {
	l := layout{ShapeOf(6, false), "127.150.0."}
	a := &acker{processes: &processes{layout: l}, history: newHistory(), waiting: map[string]pending{}}
	for i, act := range NewPlan(3, l.Shape, 10*time.Minute) {
		if act.What != write || act.State == none {
			continue
		}
		err := a.expect(act.Target, i, l.object(act.Target, act.State, i, 0), false)
		if act.State == invalid {
			require.ErrorContains(t, err, "weight", "a route that is meant to be invalid")
			continue
		}
		require.NoError(t, err)
	}
}
