//go:build defects

package modelcheck

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/defect"
)

// mostSeeds bounds the search for a run that finds a defect.
const mostSeeds = 60

// TestDefectsAreFound plants each defect and shows that a run finds it.
func TestDefectsAreFound(t *testing.T) {
	for _, d := range defect.All {
		t.Run(string(d), func(t *testing.T) {
			defect.Plant(d)
			defer defect.Plant("")
			for seed := range uint64(mostSeeds) {
				c, err := try(t, newPlan(seed, length, 1))
				if err != nil {
					t.Logf("seed %d, %d events: %v", seed, c.events, err)
					return
				}
			}
			require.Fail(t, "the defect was not found", "in %d runs", mostSeeds)
		})
	}
}
