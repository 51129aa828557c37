package ledger

import (
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Handle processes a request: the ACK or NACK of the response in flight, and changes of the
// subscription. It reports whether the mesh serves the request's type. Err returns an error if the
// request has too many names.
func (l *Ledger) Handle(r *Request) bool { return l.HandleRenamed(r, nil) }

// HandleRenamed is Handle for a request whose names rename replaces, once the ledger has admitted the request. rename
// returns how many names the caller stores beside those of the ledger, and their bytes: they count as subscriptions.
func (l *Ledger) HandleRenamed(r *Request, rename func(*Request) (names, bytes int)) bool {
	k, ok := l.kindOf(r.TypeURL)
	if !ok {
		return false
	}
	if !l.admits(k, r) {
		return true
	}
	if rename != nil {
		l.aliases.names, l.aliases.bytes = rename(r)
	}
	w := &l.watches[k]
	nonce := parseNonce(r.Nonce)
	since := l.newest()
	if r.Error != nil {
		since = min(since, l.completeUpTo(k, false))
	}
	if f := l.takeAnswered(k, nonce); f != nil {
		l.prefetch.dropUnrequested(k, f)
		if r.Error == nil {
			l.accept(k, f)
		} else {
			l.refuse(k, f, r.Error, since)
			l.replaceRefused()
		}
	}
	if l.protocol == Delta {
		l.subscribe(k, r)
		l.scopes.request(k, r)
		l.reconnecting = l.reconnecting && !l.routesKnown(r)
	} else if len(r.Nonce) == 0 || nonce == w.nonce {
		l.subscribeSotw(k, r)
	}
	if len(r.Subscribe)+len(r.Names) > 0 {
		l.checkSubscriptions()
	}
	return true
}

// routesKnown reports whether a proxy that connected again has listed the routes that it has. A proxy that asks for
// shards may have no virtual hosts and no route configurations to list. It lists what it has before it answers anything.
func (l *Ledger) routesKnown(r *Request) bool {
	if l.states[0].Table().OnDemand() && l.strategy.Scopes && len(r.Nonce) > 0 {
		return true
	}
	return l.watches[rds].on && (l.watches[vhds].on || !l.strategy.VirtualHosts)
}

// parseNonce returns the number of a nonce, or 0 if this package did not assign it.
func parseNonce(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// accept processes an ACK.
func (l *Ledger) accept(k kind, f *flight) {
	w := &l.watches[k]
	switch {
	case len(w.held) == 0:
	case l.fullState(w):
		w.held = nil
	default:
		for e := range f.entries() {
			if now := l.lookup(w.typ, e.Name); w.flight != nil && now != nil && w.holds(now) {
				continue // a later response may omit what was refused before this one
			}
			delete(w.held, e.Name)
		}
	}
	if w.idle() {
		w.pendingSince = 0
	}
	if k == rds {
		l.hosts.routesAccepted(f)
	}
	if l.asked {
		l.grant(f.names())
	}
}

// Span is a range of revisions. The zero Span has none.
type Span struct{ After, Upto model.Revision } // After is exclusive, Upto inclusive

// Has reports whether a revision is in the span.
func (s Span) Has(rev model.Revision) bool { return rev > s.After && rev <= s.Upto }

// Joined returns the smallest span that has both.
func (s Span) Joined(with Span) Span {
	switch (Span{}) {
	case s:
		return with
	case with:
		return s
	}
	return Span{min(s.After, with.After), max(s.Upto, with.Upto)}
}

// Settle returns the newest revision up to which everything that concerns the stream is ACKed or
// held, and the revisions that NACKs since the last call may be about. The former never decreases.
func (l *Ledger) Settle() (rev model.Revision, refused Span) {
	defer l.countProcessed()()
	floor, heldUp := l.newest(), l.onlyHeldRemain()
	for k := range kinds {
		if l.off(k) || defect.EarlyACK.On() {
			continue
		}
		if heldUp && k <= eds && !l.watches[k].firstPending {
			floor = min(floor, l.changesCompleteUpTo(k))
		} else {
			floor = min(floor, l.completeUpTo(k, false))
		}
	}
	if l.ordering.blocks() {
		floor = min(floor, l.ordering.openUpTo())
	}
	if l.reconnecting || l.unlisted(eds) {
		floor = 0 // the proxy has not listed all that it has
	}
	l.settled = max(l.settled, floor)
	refused, l.refusals = l.refusals, Span{}
	return l.settled, refused
}

// Settled returns the revision that Settle returned last.
func (l *Ledger) Settled() model.Revision { return l.settled }

// completeUpTo returns the revision up to which everything of a type is ACKed or held; always if
// nothing is outstanding. With strict, held resources count as outstanding.
func (st *streamState) completeUpTo(k kind, strict bool) model.Revision {
	w := &st.watches[k]
	switch {
	case !w.on:
		return always
	case w.firstPending:
		return 0
	}
	floor := min(st.changesCompleteUpTo(k), w.removalsCompleteUpTo(&st.states))
	if w.toRemove != nil && (strict || k != vhds || !st.onlyRefusedRoutes(w.toRemove)) {
		floor = min(floor, max(w.pendingSince, 1)-1)
	}
	if strict {
		for _, h := range w.held {
			floor = min(floor, h.since)
		}
	}
	return floor
}

// onlyRefusedRoutes reports whether the proxy refuses the route configurations of all these virtual hosts, and has them in
// an older form or not at all. The removal of the virtual hosts waits until a route configuration differs, and counts as
// settled like it. One that the proxy subscribes to by name is removed at once, so it does not wait.
func (st *streamState) onlyRefusedRoutes(hosts *names.Set) bool {
	w := &st.watches[rds]
	if len(w.held) == 0 {
		return false
	}
	for n := range hosts.All() {
		if e := st.lookup(w.typ, table.RouteConfigOf(n)); e == nil || !w.holds(e) || st.subscribes(vhds, n) {
			return false
		}
	}
	return true
}

// changesCompleteUpTo is completeUpTo without removals that were not sent.
func (st *streamState) changesCompleteUpTo(k kind) model.Revision {
	w, floor := &st.watches[k], always
	if !w.on {
		return always
	}
	if w.toSend != nil || len(w.groups) > 0 || w.explicit() || k == vhds && st.toLoad != nil {
		floor = max(w.pendingSince, 1) - 1
	}
	for i, s := range st.states {
		if c := w.acked(i); s.LastChanged(w.typ) > c.add {
			floor = min(floor, c.firm)
		}
	}
	return floor
}

// removalsCompleteUpTo returns the revision up to which removals are ACKed.
func (w *watch) removalsCompleteUpTo(states *[MaxTables]*table.State) model.Revision {
	floor := always
	for i, s := range states {
		c := w.acked(i)
		if s.LastRemoved(w.typ) > c.rem {
			floor = min(floor, c.rem)
		}
		if c.wait > 0 {
			floor = min(floor, c.wait-1)
		}
	}
	return floor
}

// acked returns the cursor of what the proxy is known to have accepted.
func (w *watch) acked(i int) cursor {
	switch {
	case w.earlier != nil:
		return w.earlier.from[i]
	case w.flight != nil:
		return w.flight.from[i]
	}
	return w.at[i]
}

// onlyHeldRemain reports whether removals of clusters, and with them of endpoints, wait only for
// resources that are held. Like these, they then count as settled.
func (st *streamState) onlyHeldRemain() bool {
	return st.refused > 0 && len(st.watches[cds].held)+len(st.watches[lds].held)+len(st.watches[rds].held)+len(st.watches[vhds].held) > 0 &&
		min(st.completeUpTo(lds, false), st.completeUpTo(rds, false), st.completeUpTo(vhds, false)) == always
}

// refuse processes a NACK. since is the oldest revision that the resources of the proxy may have.
//
// If the response had one resource, or the message names some, those are held and the others are
// sent again. Otherwise the ledger sends one half and then the other, until it finds the
// resources that the proxy refuses on their own.
func (l *Ledger) refuse(k kind, f *flight, e *Error, since model.Revision) {
	w := &l.watches[k]
	if !w.isRepeated(f) {
		l.refusals = l.refusals.Joined(l.changesOf(w, f, since))
	}
	l.refused++
	defer w.number(l.refused)
	message := e.Message
	all := f.names()
	switch {
	case l.fullState(w):
		w.refuseWhole(f, all, message, since)
		return
	case len(all) == 0:
		return
	case len(all) == 1:
		w.hold(all, f, attribute(all, message), w.held, since)
	default:
		about := attribute(all, message)
		good := about.rest
		if defect.BlockingNACK.On() {
			good = nil
		}
		w.hold(about.bad, f, about, w.held, since)
		if len(about.bad) == 0 {
			w.groups = append([][]string{good[:len(good)/2], good[len(good)/2:]}, w.groups...)
		} else if len(good) > 0 {
			w.groups = append([][]string{good}, w.groups...)
		}
	}
	if len(w.groups) > 0 {
		w.notePending(since + 1)
	} else if w.idle() {
		w.pendingSince = 0
	}
}

// changesOf returns the revisions that a response may be about, if the cursors moved with it. Nothing is known of one that has
// names: it may be about all that was published.
func (l *Ledger) changesOf(w *watch, f *flight, since model.Revision) Span {
	if f.explicit {
		return Span{0, l.newest()}
	}
	sent := Span{After: since}
	for _, at := range w.at {
		sent.Upto = max(sent.Upto, at.add, at.rem)
	}
	return sent
}

// number numbers the resources that the newest NACK refused.
func (w *watch) number(nack uint64) {
	for _, h := range w.held {
		if h.nack == 0 {
			h.nack = nack
		}
	}
}

// refuseWhole processes the NACK of a state-of-the-world response. It holds the resources that the
// message names and no others: the response had all resources, and Envoy accepted the rest.
func (w *watch) refuseWhole(f *flight, all []string, message string, since model.Revision) {
	about := attribute(all, message)
	bad := about.bad
	if len(all) == 1 {
		bad = all
	}
	before := w.held
	w.held = nil
	if len(bad) == 0 {
		w.held = map[string]*Held{Whole: {Name: Whole, Version: w.version, Message: about.whole, since: since}}
	}
	w.hold(bad, f, about, before, since)
}

// hold holds refused resources of a response back until they differ, if the proxy is subscribed to them. before has those
// that it refused already.
func (w *watch) hold(bad []string, f *flight, about *attribution, before map[string]*Held, since model.Revision) {
	versions := f.versionsOf(bad)
	for _, name := range bad {
		version, ok := versions[name]
		if !ok || !w.wildcard && !w.names.Has(name) {
			continue
		}
		h := &Held{Name: name, Version: version, Message: about.messageFor(name), since: since}
		if b := before[name]; b != nil {
			h.since = min(since, b.since)
			if b.Version == version {
				h.tries = b.tries
			}
		}
		if w.held == nil {
			w.held = map[string]*Held{}
		}
		w.held[name] = h
	}
}

// Retry sends refused resources again, one by one, although they did not change: the reason of the refusal
// may have disappeared. It applies to resources whose message the function may accepts, and sends only if
// send is set. It retries a resource up to most times, and holds it until the answer. It reports
// whether there are such resources. Sotw streams are not retried, as each response has everything.
func (l *Ledger) Retry(t resource.Type, send bool, most int, may func(message string) bool) bool {
	k, ok := l.watchOf(t)
	if !ok || l.protocol == Sotw || len(l.watches[k].held) == 0 {
		return false
	}
	w := &l.watches[k]
	var due []string
	found := false
	for name, h := range w.held {
		if h.tries == most || !may(h.Message) {
			continue
		}
		found = true
		if send && !h.retry {
			due = append(due, name)
		}
	}
	if len(due) == 0 {
		return found
	}
	slices.Sort(due)
	for _, name := range due {
		retried := *w.held[name]
		retried.retry = true
		retried.tries++
		w.held[name] = &retried
		w.groups = append(w.groups, []string{name})
	}
	w.notePending(l.newest())
	return true
}

// isRepeated reports whether a response has only one resource, which was refused before.
func (w *watch) isRepeated(f *flight) bool {
	all := f.names()
	return len(all) == 1 && w.held[all[0]] != nil && w.held[all[0]].retry
}
