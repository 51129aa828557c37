package chaos

import (
	"context"
	"slices"
)

// Shrink repeats a run that has violations with fewer of its actions, at most tries times. It returns the report of the run
// with the fewest actions that still has a violation of the same kind as the first one.
func Shrink(ctx context.Context, o Options, first *Report, tries int) (*Report, error) {
	best, kind := first, first.Violations[0].Kind
	var failed error
	shrink(first.Plan, tries, func(plan []Action) bool {
		if failed != nil {
			return false
		}
		o.Plan = plan
		r, err := Run(ctx, o)
		if err != nil {
			failed = err
			return false
		}
		if !slices.ContainsFunc(r.Violations, func(v violation) bool { return v.Kind == kind }) {
			return false
		}
		r.ShrunkFrom = len(first.Plan)
		best = r
		return true
	})
	return best, failed
}

// shrink leaves out parts of a list, first halves and then smaller ones, as long as fails accepts the rest. It calls fails
// at most tries times, and returns the last list that fails has accepted.
func shrink(list []Action, tries int, fails func([]Action) bool) []Action {
	for parts := 2; len(list) > 1; {
		size := (len(list) + parts - 1) / parts
		reduced := false
		for from := 0; from < len(list) && !reduced; from += size {
			if tries--; tries < 0 {
				return list
			}
			rest := slices.Concat(list[:from], list[min(from+size, len(list)):])
			if fails(rest) {
				list, reduced = rest, true
			}
		}
		switch {
		case reduced:
			parts = max(parts-1, 2)
		case size == 1:
			return list
		default:
			parts = min(2*parts, len(list))
		}
	}
	return list
}
