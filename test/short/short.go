// Package short shortens tests that take several times as long with the race detector, as in `make unit`. `make properties`
// runs all of them without it.
package short

import "testing"

// Sample returns one in five elements if tests are short, and else all.
func Sample[T any](all []T) []T {
	if !testing.Short() {
		return all
	}
	var out []T
	for i := 0; i < len(all); i += 5 {
		out = append(out, all[i])
	}
	return out
}
