package server

import (
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/table"
)

var _ distribution.Proxies = (*Server)(nil)

// Who has a change is found when somebody asks, from the streams' cursors and the tables'
// logs. Nothing is kept for each change and proxy.

// Distribution tells where each proxy stands: all that are connected, and those that left
// without the revision. It waits for an announcement under way, so that a revision that
// the Observer was told of is known to the streams.
func (s *Server) Distribution(q *distribution.Query) []distribution.ProxySyncStatus {
	s.publishing.Lock()
	s.publishing.Unlock() //nolint:staticcheck // SA2001: the wait is what it is for
	sv := distributionQuery{Query: q, tables: map[*table.Table]*touched{}}
	var out []distribution.ProxySyncStatus
	for _, st := range s.streams.all() {
		if w, ok := st.syncStatus(&sv); ok {
			out = append(out, w)
		}
	}
	return append(out, sv.without(s.notConnected())...)
}
