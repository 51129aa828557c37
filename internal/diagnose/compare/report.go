package compare

import (
	"fmt"
	"strconv"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
)

// Report is what differs between two sides.
type Report struct {
	Left    string `json:"left"`
	Right   string `json:"right"`
	Proxies int    `json:"proxies"` // that both sides have
	// OnlyLeft and OnlyRight are the proxies that only one side has. Their calls are not compared.
	OnlyLeft  []string `json:"onlyLeft,omitempty"`
	OnlyRight []string `json:"onlyRight,omitempty"`

	Calls int `json:"calls"` // that both sides decide
	Alike int `json:"alike"`
	// Differ counts the calls that are decided differently, Deliberate those of them whose differences are all known and
	// on purpose.
	Differ     int `json:"differ"`
	Deliberate int `json:"deliberate"`
	// Differences has them, calls with equal changes together; those on purpose are last.
	Differences []Difference `json:"differences"`
	// Undecided are calls that the simulator cannot decide on some side.
	Undecided []outcome.Undecided `json:"undecided,omitempty"`
	// Untried counts the calls that exceed MaxCalls, and the routes and policies' operations that no call could be made for.
	Untried int      `json:"untried,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Same reports whether all calls are decided alike, but for differences on purpose.
func (r *Report) Same() bool {
	return r.Differ == r.Deliberate && len(r.Undecided) == 0 && r.Untried == 0
}

// Difference is a set of calls that differ in the same way.
type Difference struct {
	Count   int      `json:"count"`
	Calls   []string `json:"calls"`   // texts
	Proxies []string `json:"proxies"` // that the calls pass first
	// Objects shaped the decisions: "VirtualService/shop/reviews".
	Objects []string `json:"objects,omitempty"`
	Changes []Change `json:"changes"`
	// Deliberate is set if all changes are on purpose.
	Deliberate *Deliberate `json:"deliberate,omitempty"`
}

// Change is one property of a call on both sides. A side without the property has "none".
type Change struct {
	What  string `json:"what"`
	Left  string `json:"left"`
	Right string `json:"right"`
}

// Summary is the result in one sentence, for example "1,201 of 1,204 calls of 86 proxies are decided alike; 3 differ, on
// purpose".
func (r *Report) Summary() string {
	proxies := "proxies"
	if r.Proxies == 1 {
		proxies = "proxy"
	}
	text := fmt.Sprintf("%s of %s calls of %s %s are decided alike", grouped(r.Alike), grouped(r.Calls), grouped(r.Proxies), proxies)
	switch {
	case r.Differ > 0 && r.Differ == r.Deliberate:
		text += fmt.Sprintf("; %s differ, on purpose", grouped(r.Differ))
	case r.Deliberate > 0:
		text += fmt.Sprintf("; %s differ, %s of them on purpose", grouped(r.Differ), grouped(r.Deliberate))
	case r.Differ > 0:
		text += fmt.Sprintf("; %s differ", grouped(r.Differ))
	}
	if undecided := outcome.CountUndecided(r.Undecided); undecided > 0 {
		text += fmt.Sprintf("; %s are undecided", grouped(undecided))
	}
	if r.Untried > 0 {
		text += fmt.Sprintf("; %s more were not tried", grouped(r.Untried))
	}
	return text
}

// grouped writes a number with commas.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
