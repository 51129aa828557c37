// Package spelling finds which name was probably meant. It is pure.
package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// DidYouMean is a hint at the candidate nearest to name, or "".
func DidYouMean(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// Nearest is the candidate that name was probably meant to be, or "".
func Nearest(name string, candidates []string) string {
	best, bound := "", min(max(1, len(name)/3), 3)
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(fold(name), fold(c), bound); d <= bound && (best == "" || d < bound) {
			best, bound = c, d
		}
	}
	return best
}

func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance is the number of edits (swaps of neighbours count once) between a and b,
// or bound+1 where it is more than bound.
func distance(a, b string, bound int) int {
	if len(a)-len(b) > bound || len(b)-len(a) > bound || len(a) > 256 || len(b) > 256 {
		return bound + 1
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// Sample lists some names for a message.
func Sample(names []string) string {
	const most = 8
	names = slices.Sorted(slices.Values(names))
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}
