package names

import "unsafe"

// List is names that a Pool is asked about. It is a value of slices and no iterator, which would
// cost an allocation for each of its variables, on each stream.
type List struct {
	strings []string
	slices  [][]byte // of a request's buffer; they are not kept
}

// Strings is a list of strings.
func Strings(names []string) List { return List{strings: names} }

// Slices is a list of names in a request's buffer.
func Slices(names [][]byte) List { return List{slices: names} }

// Len is the number of names, repeated ones too.
func (l List) Len() int { return len(l.strings) + len(l.slices) }

// at is a name, which must not be changed.
func (l List) at(i int) []byte {
	if i < len(l.strings) {
		return unsafe.Slice(unsafe.StringData(l.strings[i]), len(l.strings[i]))
	}
	return l.slices[i-len(l.strings)]
}
