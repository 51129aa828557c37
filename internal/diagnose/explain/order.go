package explain

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// gravity orders positions: what is worst comes first.
var gravity = map[server.SyncState]int{
	server.PositionRefused: 0, server.PositionBehind: 1, server.PositionDisconnected: 2,
	server.PositionACKed: 3, server.PositionNotConcerned: 4,
}

func sortWhereabouts(list []server.ProxySyncStatus) {
	slices.SortFunc(list, func(a, b server.ProxySyncStatus) int {
		return cmp.Or(cmp.Compare(gravity[a.Position], gravity[b.Position]),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}
