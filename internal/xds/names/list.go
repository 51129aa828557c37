package names

// List is a list of names that a caller passes to a Pool. It is a pair of slices and not an
// iterator, which would allocate on each stream.
type List struct {
	strings []string
	slices  [][]byte // of a request's buffer; a Pool does not keep them
}

// Strings returns a list of strings.
func Strings(names []string) List { return List{strings: names} }

// Slices returns a list of names in a request's buffer.
func Slices(names [][]byte) List { return List{slices: names} }

// Len returns the number of names, including duplicates.
func (l List) Len() int { return len(l.strings) + len(l.slices) }

// at returns the i-th name. The caller must not change it.
func (l List) at(i int) []byte {
	if i < len(l.strings) {
		return []byte(l.strings[i])
	}
	return l.slices[i-len(l.strings)]
}
