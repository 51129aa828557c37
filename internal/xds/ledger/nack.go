package ledger

import (
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// maxMessage bounds what is kept of a proxy's complaint, in bytes. Envoy prints what it does not like in between:
// the reason is in the beginning or in the end.
const (
	maxMessage = 1024
	fromEnd    = 640
	leftOut    = " ... "
)

// Shortened is a complaint as it is kept, and logged.
func Shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return message[:maxMessage-fromEnd-len(leftOut)] + leftOut + message[len(message)-fromEnd:]
}

// refuse takes a NACK. Of one resource it is known which one was refused; of several,
// those that the message names are held back and the others sent again; if it names
// none, one half is sent and then the other, down to the ones that are refused alone.
// The proxy's resources are of the revision since, or newer.
func (l *Ledger) refuse(k kind, f *flight, e *Error, since model.Revision) {
	w := &l.watches[k]
	l.nacked = l.nacked || !w.repeated(f)
	l.refused++
	message := e.Message
	all := f.names()
	switch {
	case l.protocol == Sotw && resource.Types[w.typ].FullState:
		w.refuseWhole(f, all, message, since)
		return
	case len(all) == 0:
		return
	case len(all) == 1:
		w.hold(all[0], f, message, since)
	default:
		bad, good := named(all, message)
		for _, n := range bad {
			w.hold(n, f, share(message, n, bad), since)
		}
		if len(bad) == 0 {
			w.groups = append([][]string{good[:len(good)/2], good[len(good)/2:]}, w.groups...)
		} else if len(good) > 0 {
			w.groups = append([][]string{good}, w.groups...)
		}
	}
	if len(w.groups) > 0 {
		w.owe(since + 1)
	} else if w.idle() {
		w.owes = 0
	}
}

// refuseWhole holds back what the message names of a state-of-the-world response, and
// nothing else any more: the response had everything, and Envoy has taken the rest.
func (w *watch) refuseWhole(f *flight, all []string, message string, since model.Revision) {
	bad, _ := named(all, message)
	if len(all) == 1 {
		bad = all
	}
	before := w.held
	w.held = nil
	if len(bad) == 0 {
		w.held = map[string]*Held{Whole: {Name: Whole, Version: w.version, Message: Shortened(message), since: since}}
	}
	for _, n := range bad {
		s := since
		if h := before[n]; h != nil {
			s = min(s, h.since)
		}
		w.hold(n, f, share(message, n, bad), s)
	}
}

// hold keeps a refused resource from being sent until it differs, if the proxy still wants it.
func (w *watch) hold(name string, f *flight, message string, since model.Revision) {
	if !w.wild && !w.names.Has(name) {
		return
	}
	if w.held == nil {
		w.held = map[string]*Held{}
	}
	before := w.held[name]
	if before != nil {
		since = min(since, before.since)
	}
	message = strings.TrimPrefix(message, name+": ") // whoever tells it names the resource
	for e := range f.entries() {
		if e.Name == name {
			w.held[name] = &Held{Name: name, Version: e.Version, Message: Shortened(message), since: since}
			if before != nil && before.Version == e.Version {
				w.held[name].tries = before.tries
			}
			return
		}
	}
}

// names are all names of the response. What goes comes first: where the response is sent
// again in parts, a removal must not come after the addition that it makes room for.
func (f *flight) names() (out []string) {
	out = append(out, f.removed...)
	for e := range f.entries() {
		out = append(out, e.Name)
	}
	return out
}

// named splits names by whether a message tells them. Short names (of route
// configurations: "80") appear in messages by chance, and do not count.
func named(all []string, message string) (bad, rest []string) {
	for _, n := range all {
		if telling(n) && mentions(message, n) {
			bad = append(bad, n)
		} else {
			rest = append(rest, n)
		}
	}
	return bad, rest
}

// share is what a message says of one of several names: "NAME: " and what comes before the next of them.
func share(message, name string, all []string) string {
	from := tells(message, name)
	if len(all) == 1 || from < 0 {
		return message
	}
	message = message[from:]
	end := len(message)
	for _, n := range all {
		if i := tells(message, n); i > 0 {
			end = min(end, i)
		}
	}
	return strings.TrimRight(message[:end], ", \n")
}

// tells is where a message begins to tell of a name; -1: nowhere.
func tells(message, name string) int {
	for at := 0; ; {
		i := strings.Index(message[at:], name+": ")
		if i < 0 {
			return -1
		}
		if at += i; at == 0 || !nameByte(message[at-1]) {
			return at
		}
		at++
	}
}

func telling(name string) bool {
	return len(name) >= 8 && (strings.ContainsAny(name, "|/._") || strings.ToLower(name[1:]) != name[1:])
}

// mentions tells whether name stands in message as a word of its own.
func mentions(message, name string) bool {
	for at := 0; ; {
		i := strings.Index(message[at:], name)
		if i < 0 {
			return false
		}
		i += at
		end := i + len(name)
		if (i == 0 || !nameByte(message[i-1])) && (end == len(message) || !nameByte(message[end]) || endsWord(message[end:])) {
			return true
		}
		at = i + 1
	}
}

// endsWord tells whether punctuation that could be part of a name ends a sentence or clause.
func endsWord(rest string) bool {
	return (rest[0] == '.' || rest[0] == ':') && (len(rest) == 1 || rest[1] == ' ' || rest[1] == '\n')
}

func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("-_.|/:", b) >= 0
}
