package ledger

import (
	"errors"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Ledger is the state of one stream. It is not safe for concurrent use.
type Ledger struct {
	protocol Protocol
	on       uint16 // bits: the kinds that the proxy requested
	strategy *Strategy
	pool     *names.Pool
	states   [MaxTables]*table.State
	nonce    uint64 // of the newest response of any type
	watches  [kinds]watch
	err      error

	prefetch endpointPrefetch
	scopes   scopes
	ordering ordering
	resend   *names.Set // changed clusters whose endpoints the proxy does not subscribe to yet

	// Sets of route configurations, for virtual hosts; see vhds.go.
	synced        *names.Set // the proxy has them, and their virtual hosts follow the cursor
	toLoad        *names.Set // the proxy has them and needs all of their virtual hosts
	claimedRoutes *names.Set // the proxy listed them on reconnecting
	claimedHosts  *names.Set // the proxy listed virtual hosts of them on reconnecting

	reconnecting bool   // the proxy listed clusters, and did not list its routes yet
	refused      uint64 // NACKs ever

	settled model.Revision
	nacked  bool // since the last call of Settle
}

// ErrBehind is returned when the tables have forgotten removals that the stream was not sent. The
// proxy must connect again and list what it has.
var ErrBehind = errors.New("too far behind: connect again")

// New returns the ledger of a stream that is bound to the tables of states, at most MaxTables.
func New(protocol Protocol, strategy *Strategy, pool *names.Pool, states []*table.State) *Ledger {
	if protocol == Sotw {
		strategy = WholeRoutes
	}
	l := &Ledger{protocol: protocol, strategy: strategy, pool: pool, states: padded(states)}
	for k, t := range kindTypes {
		l.watches[k].typ = t
	}
	l.watches[rds].typ = strategy.Routes
	return l
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
func (l *Ledger) Strategy() *Strategy { return l.strategy }

// Update sets the newest states of the tables. If they belong to other tables than before, it binds
// the stream to those.
func (l *Ledger) Update(states []*table.State) {
	next := padded(states)
	for i := range next {
		if next[i].Table() != l.states[i].Table() {
			l.rebind(next)
			return
		}
	}
	l.states = next
}

// lookup returns the entry of a name from the table that has it, or nil.
func (l *Ledger) lookup(t resource.Type, name string) *table.Entry {
	for _, s := range l.states {
		if e := s.Get(t, name); e != nil {
			return e
		}
	}
	return nil
}

func (l *Ledger) lookupBytes(t resource.Type, name []byte) *table.Entry {
	for _, s := range l.states {
		if e := s.GetBytes(t, name); e != nil {
			return e
		}
	}
	return nil
}

// newest returns the newest revision of the tables.
func (l *Ledger) newest() model.Revision {
	return max(l.states[0].Revision, l.states[1].Revision)
}

// Err returns why the stream must end, or nil.
func (l *Ledger) Err() error { return l.err }
