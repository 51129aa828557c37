package ledger

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// maxMessage bounds what is kept of a proxy's message, in bytes. Envoy prints the refused resource in the
// middle; the reason is at the beginning or at the end.
const (
	maxMessage = 1024
	fromEnd    = 640
	leftOut    = " ... "
)

// maxMentioned bounds the length of names that are looked for in messages, in bytes.
const maxMentioned = 1024

// Shortened returns a copy of the part of a proxy's message that is kept and logged: its beginning and
// its end, without white space around it. It cuts no character, and does not keep the message in memory.
func Shortened(message string) string {
	message = strings.TrimSpace(message) // Envoy ends its messages with a line feed
	if len(message) <= maxMessage {
		return strings.Clone(message)
	}
	cut := message[:maxMessage-fromEnd-len(leftOut)] + leftOut + message[len(message)-fromEnd:]
	return strings.ToValidUTF8(cut, "")
}

// attribution is what a message says about the names of a refused response. One pass over the message
// finds all of them.
type attribution struct {
	message   string
	bad, rest []string       // names that the message mentions, and the others
	from      map[string]int // where the message first describes a bad name, or notDescribed
	described []description  // in the order of the message
	whole     string         // the shortened message
}

// description is a place where a message begins to describe a name, as "NAME: ".
type description struct {
	at   int
	name string // the longest one, if there are several
}

// attribute finds names in a message. Short names, such as the route configuration "80", do not count, as
// they occur in messages by chance.
func attribute(all []string, message string) *attribution {
	a := &attribution{message: message, whole: Shortened(message), from: map[string]int{}}
	x := indexNames(all)
	for at := range message {
		if at == 0 || !nameByte(message[at-1]) {
			a.word(&x, at)
		}
	}
	for i, n := range x.names {
		if x.from[i] != notMentioned {
			a.from[n] = x.from[i]
		}
	}
	for _, n := range all {
		if _, ok := a.from[n]; ok {
			a.bad = append(a.bad, n)
		} else {
			a.rest = append(a.rest, n)
		}
	}
	return a
}

// word records the names that the message has where a word begins.
func (a *attribution) word(x *nameIndex, at int) {
	longest := true
	for i := range x.prefixesOf(a.message[at:]) {
		rest := a.message[at+len(x.names[i]):]
		if !endsName(rest) {
			continue
		}
		if !strings.HasPrefix(rest, ": ") {
			x.from[i] = max(x.from[i], notDescribed)
			continue
		}
		if x.from[i] < 0 {
			x.from[i] = at
		}
		if longest {
			a.described = append(a.described, description{at, x.names[i]})
		}
		longest = false
	}
}

// part returns the part of the message about a bad name: from "NAME: " to the next bad name.
func (a *attribution) part(name string) string {
	from, ok := a.from[name]
	if len(a.bad) == 1 || !ok || from < 0 {
		return a.message
	}
	i, _ := slices.BinarySearchFunc(a.described, from+1, func(d description, at int) int { return d.at - at })
	for i < len(a.described) && a.described[i].name == name {
		i++
	}
	end := len(a.message)
	if i < len(a.described) {
		end = a.described[i].at
	}
	return strings.TrimRight(a.message[from:end], ", \n")
}

// messageFor returns what is kept of the message for a bad name. It does not repeat the name, as what reports it names the
// resource. Names that are not described share one copy.
func (a *attribution) messageFor(name string) string {
	part := a.part(name)
	if reason, ok := strings.CutPrefix(part, name+": "); ok {
		return Shortened(reason)
	}
	if len(part) == len(a.message) {
		return a.whole
	}
	return Shortened(part)
}

// nameIndex finds names at the beginning of a text.
type nameIndex struct {
	names   []string // sorted
	shorter []int    // for each name, the longest other name that it begins with; -1: none
	from    []int    // where a message first describes each name, or one of the constants below
}

const (
	notDescribed = -1 - iota // but mentioned
	notMentioned
)

func indexNames(all []string) nameIndex {
	var x nameIndex
	for _, n := range all {
		if distinctive(n) && len(n) <= maxMentioned {
			x.names = append(x.names, n)
		}
	}
	slices.Sort(x.names)
	x.names = slices.Compact(x.names)
	x.shorter, x.from = make([]int, len(x.names)), make([]int, len(x.names))
	for i, n := range x.names {
		p := i - 1
		for p >= 0 && !strings.HasPrefix(n, x.names[p]) {
			p = x.shorter[p]
		}
		x.shorter[i], x.from[i] = p, notMentioned
	}
	return x
}

// prefixesOf yields the names that a text begins with, the longest first. All of them are the last name that is not after the
// text, or names that this one begins with.
func (x *nameIndex) prefixesOf(text string) iter.Seq[int] {
	return func(yield func(int) bool) {
		i := sort.Search(len(x.names), func(i int) bool { return x.names[i] > text }) - 1
		if i < 0 {
			return
		}
		common := commonPrefix(x.names[i], text)
		for ; i >= 0; i = x.shorter[i] {
			if len(x.names[i]) <= common && !yield(i) {
				return
			}
		}
	}
}

// commonPrefix returns how many bytes two strings have in common at their beginning.
func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// distinctive reports whether a name is unlikely to occur in a message by chance.
func distinctive(name string) bool {
	return len(name) >= 8 && (strings.ContainsAny(name, "|/._") || strings.ToLower(name[1:]) != name[1:])
}

// endsName reports whether a name ends where the rest of a message begins. It does not end inside a longer word.
func endsName(rest string) bool { return rest == "" || !nameByte(rest[0]) || endsWord(rest) }

// endsWord reports whether punctuation that may be part of a name ends a sentence or clause.
func endsWord(rest string) bool {
	return (rest[0] == '.' || rest[0] == ':') && (len(rest) == 1 || rest[1] == ' ' || rest[1] == '\n')
}

// nameByte reports whether a byte may be part of a name.
func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("-_.|/:", b) >= 0
}
