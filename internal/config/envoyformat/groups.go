package envoyformat

import "fmt"

// CheckGroups checks what replaces a match of a regular expression of so many groups: \1 to \9 are groups, \0 is all
// of it, and two backslashes are one.
func CheckGroups(to string, groups int) error {
	for i := 0; i < len(to); i++ {
		if to[i] != '\\' {
			continue
		}
		i++
		switch {
		case i == len(to) || to[i] != '\\' && (to[i] < '0' || to[i] > '9'):
			return fmt.Errorf(`%q: a backslash must be followed by a group's number or another backslash`, to)
		case to[i] != '\\' && int(to[i]-'0') > groups:
			return fmt.Errorf(`%q: there is no group \%c in the expression, which has %d`, to, to[i], groups)
		}
	}
	return nil
}
