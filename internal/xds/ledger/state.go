package ledger

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// streamState is what a proxy subscribes to, what it was sent, and what it ACKed.
type streamState struct {
	protocol     Protocol
	reconnecting bool   // the proxy listed clusters, and did not list its routes yet
	refusals     Span   // of the NACKs since the last call of Settle
	asked        bool   // the proxy asks for clusters by name, and for nothing else
	requests     uint16 // bits: the kinds that the proxy requested

	carriage

	strategy *Strategy
	pool     *names.Pool
	states   [MaxTables]*table.State
	// published is the newest revision that was published to the stream. A stream that moves to other tables may have
	// been counted for a revision that these do not have.
	published model.Revision
	watches   [kinds]watch

	// Route configurations that the proxy has, see vhds.go.
	synced        *names.Set // their virtual hosts follow the cursor
	toLoad        *names.Set // all of their virtual hosts are to be sent
	claimedRoutes *names.Set // the proxy listed them on reconnecting

	granted *names.Set // with asked: those of the subscribed names of which the proxy has a cluster
	resend  *names.Set // changed clusters whose endpoints the proxy does not subscribe to yet
	// newClusters are those that the proxy lacked when it connected again, until its next ACK of clusters.
	newClusters *names.Set
	// changed are clusters whose endpoints are in EDS's toSend again, because the proxy was sent another form of them.
	changed *names.Set
	// postponed are names of EDS's toSend that the proxy has an older form of, and that follow a change of their cluster.
	postponed *names.Set
	refused   uint64 // NACKs ever
	// overdue is the nonce of the newest response with clusters whose answer is late, and answered the newest nonce of any
	// type that was answered.
	overdue, answered uint64
	err               error

	// Names that the proxy listed on reconnecting, and those of them that no table has. They are
	// looked up only once there are too many.
	listed, unknown amountOfNames

	aliases amountOfNames // what HandleRenamed's rename returned last
}

var noTable = table.New("none").State()

// padded fills up states with empty tables.
func padded(states []*table.State) (out [MaxTables]*table.State) {
	n := copy(out[:], states)
	for ; n < MaxTables; n++ {
		out[n] = noTable
	}
	return out
}

// Strategy returns how routes reach the proxy.
func (st *streamState) Strategy() *Strategy { return st.strategy }

// Err returns why the stream must end, or nil.
func (st *streamState) Err() error { return st.err }

// kindOf returns the kind of a type URL; false if the stream does not serve it.
func (st *streamState) kindOf(url []byte) (kind, bool) {
	if st.asked && string(url) != kindURLs[cds] {
		return 0, false
	}
	for k := range kinds {
		if string(url) == kindURLs[k] {
			return k, (k != vhds || st.strategy.VirtualHosts) && (k != srds || st.strategy.Scopes)
		}
	}
	return 0, false
}

// off reports whether the proxy has not requested a type.
func (st *streamState) off(k kind) bool { return st.requests&(1<<k) == 0 }

// lookup returns the entry of a name from the table that has it, or nil.
func (st *streamState) lookup(t resource.Type, name string) *table.Entry {
	for _, s := range st.states {
		if e := s.Get(t, name); e != nil {
			return e
		}
	}
	return nil
}

// lookupBytes is lookup for a name in a request's buffer.
func (st *streamState) lookupBytes(t resource.Type, name []byte) *table.Entry {
	for _, s := range st.states {
		if e := s.GetBytes(t, name); e != nil {
			return e
		}
	}
	return nil
}

// newest returns the newest revision of the tables, or that was published to the stream.
func (st *streamState) newest() model.Revision {
	return max(st.states[0].Revision, st.states[1].Revision, st.published)
}

// subscribes reports whether the removal of a name concerns the stream.
func (st *streamState) subscribes(k kind, name string) bool {
	w := &st.watches[k]
	if k == vhds {
		return st.synced.Has(table.RouteConfigOf(name)) || w.names.Has(name)
	}
	return w.wildcard || w.names.Has(name)
}

// willSubscribe is subscribes, and includes virtual hosts of route configurations that the proxy
// does not have yet.
func (st *streamState) willSubscribe(k kind, name string) bool {
	if st.subscribes(k, name) {
		return true
	}
	if k != vhds {
		return false
	}
	rc := table.RouteConfigOf(name)
	if routeshard.IsOnDemand(rc) {
		return false // it has its virtual hosts
	}
	return st.toLoad.Has(rc) || st.claimedRoutes.Has(rc) || st.watches[rds].names.Has(rc)
}

// filter returns the names that a batch is restricted to; nil for all. none reports that the proxy
// subscribes to no name.
func (st *streamState) filter(k kind) (set *names.Set, none bool) {
	w := &st.watches[k]
	switch {
	case k == vhds:
		return st.synced, st.synced == nil
	case w.wildcard:
		return nil, false
	}
	return w.names, w.names == nil
}

// fullState reports whether responses of a watch must contain every resource.
func (st *streamState) fullState(w *watch) bool {
	return st.protocol == Sotw && resource.Types[w.typ].FullState
}

// upToDate reports whether the tables have no changes or removals after the cursors.
func (st *streamState) upToDate(w *watch) bool {
	for i, s := range st.states {
		if s.LastChanged(w.typ) > w.at[i].add || s.LastRemoved(w.typ) > w.at[i].rem {
			return false
		}
	}
	return true
}

// hasRemovals reports whether the tables have removals after the cursors at.
func (st *streamState) hasRemovals(w *watch, at *[MaxTables]cursor) bool {
	for i, s := range st.states {
		if s.LastRemoved(w.typ) > at[i].rem {
			return true
		}
	}
	return false
}

// removesRoutes reports whether scopes, route configurations or virtual hosts are to be removed.
func (st *streamState) removesRoutes() bool {
	for _, k := range []kind{srds, rds, vhds} {
		if w := &st.watches[k]; w.on && (w.toRemove != nil || st.hasRemovals(w, &w.at)) {
			return true
		}
	}
	return false
}

// skipUnchanged moves the cursors past revisions that changed nothing of the type. It reports
// whether a cursor moved.
func (st *streamState) skipUnchanged(w *watch) (moved bool) {
	if w.idle() {
		w.pendingSince = 0
	}
	for i, s := range st.states {
		at := &w.at[i]
		if s.LastChanged(w.typ) <= at.add && at.firm < max(at.add, s.Revision) {
			at.add = max(at.add, s.Revision)
			at.firm, moved = at.add, true
		}
		if at.rem < s.Revision && s.LastRemoved(w.typ) <= at.rem {
			at.rem, moved = s.Revision, true
		}
	}
	return moved
}

// Sent returns the newest revision of which everything that may be sent was sent, ACKed or not.
func (st *streamState) Sent() model.Revision {
	sent := st.newest()
	for k := range kinds {
		if st.off(k) {
			continue
		}
		w := &st.watches[k]
		for i, s := range st.states {
			if s.LastChanged(w.typ) > w.at[i].add {
				sent = min(sent, w.at[i].firm)
			}
		}
	}
	return sent
}

// InFlight reports whether a response of a type is unanswered.
func (st *streamState) InFlight(t resource.Type) bool {
	w := &st.watches[kindsOf[t]]
	return w.typ == t && w.flight != nil
}
