package live

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Compare makes a call, and describes how the answer differs from the simulator's result. It calls until each cluster with a
// good share must have received a call. In 100 calls, a cluster with 20 percent is missed once in five billion runs.
func (m *Mesh) Compare(c simulate.Call, want *simulate.Result) []string {
	met := map[string]bool{}
	for range map[bool]int{false: 1, true: 100}[len(want.Clusters) > 1] {
		got, err := m.Call(c)
		if err != nil {
			return []string{err.Error()}
		}
		if diff := Differences(want, got); len(diff) > 0 {
			return diff
		}
		if got.Seen != nil {
			met[got.Seen.Cluster] = true
		}
	}
	for cluster, share := range want.Clusters {
		if share >= 20 && want.Status == 0 && want.Closed == "" && !met[cluster] {
			return []string{fmt.Sprintf("cluster %s should have had %v percent, and had none", cluster, share)}
		}
	}
	return nil
}

// ByChance reports whether a single call cannot show that the result is right, or takes too long.
func ByChance(r *simulate.Result) bool {
	if r.Status == 0 && r.Clusters[ir.UnknownService] > 0 {
		return true
	}
	return r.Fault != nil && (r.Fault.DelayPercent > 0 || r.Fault.AbortPercent > 0 && r.Fault.AbortPercent < 100)
}
