package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShrink(t *testing.T) {
	var plan []Action
	for i := range 100 {
		plan = append(plan, Action{At: time.Duration(i), What: write})
	}
	needs := func(list []Action, at ...time.Duration) bool {
		return !slices.ContainsFunc(at, func(d time.Duration) bool {
			return !slices.ContainsFunc(list, func(a Action) bool { return a.At == d })
		})
	}
	runs := 0
	both := func(list []Action) bool {
		runs++
		return needs(list, 13, 77)
	}
	require.Equal(t, []Action{plan[13], plan[77]}, shrink(plan, 1000, both))
	require.Less(t, runs, 100)
	runs = 0
	some := shrink(plan, 5, both)
	require.Equal(t, 5, runs)
	require.True(t, needs(some, 13, 77))
	require.Equal(t, plan, shrink(plan, 1000, func([]Action) bool { return false }), "nothing can be left out")
}
