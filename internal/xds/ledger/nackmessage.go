package ledger

import "strings"

// maxMessage bounds what is kept of a proxy's message, in bytes. Envoy prints the refused resource in the
// middle; the reason is at the beginning or at the end.
const (
	maxMessage = 1024
	fromEnd    = 640
	leftOut    = " ... "
)

// Shortened returns the part of a proxy's message that is kept and logged: its beginning and its
// end. It cuts no character.
func Shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	cut := message[:maxMessage-fromEnd-len(leftOut)] + leftOut + message[len(message)-fromEnd:]
	return strings.ToValidUTF8(cut, "")
}

// named splits names by whether a message mentions them. Short names, such as the route
// configuration "80", do not count, as they occur in messages by chance.
func named(all []string, message string) (bad, rest []string) {
	for _, n := range all {
		if distinctive(n) && mentions(message, n) {
			bad = append(bad, n)
		} else {
			rest = append(rest, n)
		}
	}
	return bad, rest
}

// messageFor returns the part of a message about one of several names: from "NAME: " to the next of
// them.
func messageFor(message, name string, all []string) string {
	from := indexOfName(message, name)
	if len(all) == 1 || from < 0 {
		return message
	}
	message = message[from:]
	end := len(message)
	for _, n := range all {
		if i := indexOfName(message, n); i > 0 {
			end = min(end, i)
		}
	}
	return strings.TrimRight(message[:end], ", \n")
}

// indexOfName returns where a message begins to describe a name, as "NAME: "; -1 if it does not.
func indexOfName(message, name string) int {
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

// distinctive reports whether a name is unlikely to occur in a message by chance.
func distinctive(name string) bool {
	return len(name) >= 8 && (strings.ContainsAny(name, "|/._") || strings.ToLower(name[1:]) != name[1:])
}

// mentions reports whether a message contains a name as a whole word.
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

// endsWord reports whether punctuation that may be part of a name ends a sentence or clause.
func endsWord(rest string) bool {
	return (rest[0] == '.' || rest[0] == ':') && (len(rest) == 1 || rest[1] == ' ' || rest[1] == '\n')
}

// nameByte reports whether a byte may be part of a name.
func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("-_.|/:", b) >= 0
}
