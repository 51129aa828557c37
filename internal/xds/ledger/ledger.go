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
	on       uint16 // bits: the kinds that are on. Where all are gone through, those that are not need not be looked at.
	strategy *Strategy
	pool     *names.Pool
	states   [MaxTables]*table.State
	nonce    uint64 // of the newest response of any type

	// Of virtual hosts (see vhds.go): these, load, kept and listed are sets of route configurations.
	synced *names.Set // the proxy holds them, and their virtual hosts follow the cursor

	watches [kinds]watch

	load     *names.Set // the proxy holds them and needs all their virtual hosts
	prefetch endpointPrefetch
	scopes   scopes
	ordering ordering
	resend   *names.Set // changed clusters whose endpoints are not subscribed yet
	err      error

	kept   *names.Set // it said on reconnecting that it holds them
	listed *names.Set // it said on reconnecting that it holds virtual hosts of them

	// returning: the proxy has connected again, and has not told yet what routes it has.
	returning bool
	refused   uint64 // NACKs ever

	settled model.Revision
	nacked  bool // since Settle was asked last
}

// ErrBehind tells that removals which the stream was not sent are no longer remembered.
// The proxy must connect again, and tell what it has.
var ErrBehind = errors.New("too far behind: connect again")

// New makes the ledger of a stream that is bound to the tables of states, at most MaxTables.
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

// padded fills up with empty tables.
func padded(states []*table.State) (out [MaxTables]*table.State) {
	n := copy(out[:], states)
	for ; n < MaxTables; n++ {
		out[n] = noTable
	}
	return out
}

// Strategy is how routes reach the proxy.
func (l *Ledger) Strategy() *Strategy { return l.strategy }

// Update tells the newest states of the tables; where they are of other tables than
// before, the stream is bound to those from now on.
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

// lookup gives the entry of a name, in whichever table it is.
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

// newest is the newest revision of the tables.
func (l *Ledger) newest() model.Revision {
	return max(l.states[0].Revision, l.states[1].Revision)
}

// Err is not nil where the stream must end.
func (l *Ledger) Err() error { return l.err }

// Response is what may be sent. Its parts are shared with other streams.
type Response struct {
	Type    resource.Type
	Nonce   uint64
	Parts   [4]*table.Batch // nil: nothing
	Removed []string        // delta
	Version string          // state-of-the-world
	Newest  model.Revision  // of the states that it was made from
	Whole   bool            // the first of its type, or one that has everything
}

// Next appends the responses that may go now. Each counts as sent.
func (l *Ledger) Next(out []Response) []Response {
	for range kinds {
		moved := false
		for k := range kinds {
			if k == lds {
				l.openOrdering()
				l.openScopes()
			}
			if l.off(k) || l.watches[k].flight != nil {
				continue
			}
			var m bool
			out, m = l.compose(k, out)
			moved = moved || m
		}
		if !moved { // what has moved may let others go that came before it
			break
		}
	}
	return out
}

func (l *Ledger) off(k kind) bool { return l.on&(1<<k) == 0 }

// launch appends the response of a plan.
func (l *Ledger) launch(k kind, p *plan, out []Response) []Response {
	w := &l.watches[k]
	whole := w.nonce == 0 || l.protocol == Sotw && resource.Types[w.typ].FullState
	l.nonce++
	w.nonce = l.nonce
	f := flight{from: w.at, parts: p.parts, removed: p.removed, explicit: p.explicit}
	w.at, w.todo, w.gone, w.answer = p.at, p.todo, p.gone, false
	l.follow(k, &f, p)
	w.flight = f.shared()
	return append(out, Response{Type: w.typ, Nonce: l.nonce, Parts: p.parts, Removed: p.removed, Version: w.version, Newest: l.newest(), Whole: whole})
}
