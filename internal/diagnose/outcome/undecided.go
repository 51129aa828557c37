package outcome

import (
	"slices"
	"strings"
)

// Undecided is a set of calls that the simulator cannot decide for the same reason.
type Undecided struct {
	Side   string `json:"side"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	Call   string `json:"call"` // one of them
	Proxy  string `json:"proxy"`
}

// UndecidedCalls are sets of calls by side and reason.
type UndecidedCalls map[[2]string]*Undecided

// Add adds count calls that are undecided for one reason. call is the text of one of them, proxy where it starts.
func (u UndecidedCalls) Add(side string, reason error, call, proxy string, count int) {
	key := [2]string{side, reason.Error()}
	if u[key] == nil {
		u[key] = &Undecided{Side: side, Reason: reason.Error(), Call: call, Proxy: proxy}
	}
	u[key].Count += count
}

// Sorted returns the sets in the order of their sides and reasons.
func (u UndecidedCalls) Sorted() []Undecided {
	var out []Undecided
	for _, one := range u {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b Undecided) int { return strings.Compare(a.Side+a.Reason, b.Side+b.Reason) })
	return out
}

// CountUndecided returns the number of calls in a list.
func CountUndecided(list []Undecided) int {
	n := 0
	for i := range list {
		n += list[i].Count
	}
	return n
}
