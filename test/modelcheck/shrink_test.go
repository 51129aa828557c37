package modelcheck

import (
	"slices"
	"strings"
	"time"
)

// shrinkTime bounds the search for a shorter run, in real time.
const shrinkTime = 2 * time.Minute

// classes are parts of the messages of violations. A shortened run must fail in the same way.
var classes = []string{
	"waits for its endpoints", "enforces policy", "which does not exist", "should be gone", "is missing", "is in an old form", "no object defines", "which no workload",
	"no longer enforces", "does not enforce", "is settled, but", "all is quiet", "twice in one response", "sent and removed", "streams of", "users",
}

func class(err error) int {
	return slices.IndexFunc(classes, func(c string) bool { return strings.Contains(err.Error(), c) })
}

// shrink removes operations from a plan as long as it fails, and returns the shortest plan and why it fails.
func shrink(p *plan, err error, run func(*plan) error) (*plan, error) {
	best, deadline := *p, time.Now().Add(shrinkTime)
	if v, ok := err.(*violation); ok { //nolint:errorlint // execute returns it as it is
		best.ops = slices.Clone(p.ops[:v.at+1])
	}
	for size := len(best.ops) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(best.ops) && time.Now().Before(deadline); {
			next := best
			next.ops = slices.Concat(best.ops[:from], best.ops[from+size:])
			if why := run(&next); why != nil && class(why) == class(err) {
				best, err = next, why
			} else {
				from += size
			}
		}
	}
	for i := range best.ops { // the first events of an operation do not depend on how many follow
		for step := best.ops[i].n / 2; step > 0 && time.Now().Before(deadline); {
			next := best
			next.ops = slices.Clone(best.ops)
			if next.ops[i].n -= step; next.ops[i].n < 1 {
				step /= 2
				continue
			}
			if why := run(&next); why != nil && class(why) == class(err) {
				best, err = next, why
			} else {
				step /= 2
			}
		}
	}
	return &best, err
}
