package preview

import (
	"cmp"
	"slices"
)

// inTurn orders calls so that any beginning of them has as many callers and targets as possible. One call of each caller and one
// to each target come first. In the rest, callers and targets take turns. A target is what is called, with method, path and
// headers.
func inTurn(calls []Call) []Call {
	type pair struct{ caller, target, diagonal, index int }
	callers, targets := numbers{}, numbers{}
	pairs := make([]pair, len(calls))
	for i := range calls {
		pairs[i] = pair{callers.of(calls[i].From), targets.of(calls[i].String()), 0, i}
	}
	for i := range pairs {
		pairs[i].diagonal = (pairs[i].target - pairs[i].caller%len(targets) + len(targets)) % len(targets)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(a.diagonal-b.diagonal, a.index-b.index) })
	called, target := make([]bool, len(callers)), make([]bool, len(targets))
	var first, rest []Call
	for _, p := range pairs {
		if called[p.caller] && target[p.target] {
			rest = append(rest, calls[p.index])
			continue
		}
		called[p.caller], target[p.target] = true, true
		first = append(first, calls[p.index])
	}
	return append(first, rest...)
}

// numbers numbers texts in the order in which they first occur.
type numbers map[string]int

func (n numbers) of(text string) int {
	number, ok := n[text]
	if !ok {
		number = len(n)
		n[text] = number
	}
	return number
}
