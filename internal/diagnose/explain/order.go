package explain

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// stateOrder sorts states, the worst first.
var stateOrder = map[distribution.SyncState]int{
	distribution.StateRefused: 0, distribution.StateBehind: 1, distribution.StateDisconnected: 2,
	distribution.StateACKed: 3, distribution.StateNotConcerned: 4,
}

func sortSyncStatuses(list []distribution.ProxySyncStatus) {
	slices.SortFunc(list, func(a, b distribution.ProxySyncStatus) int {
		return cmp.Or(cmp.Compare(stateOrder[a.Position], stateOrder[b.Position]),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}
