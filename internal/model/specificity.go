package model

import "slices"

// Specificity is how much a match asks for, by the Gateway API's order: exact paths, then other
// conditions on paths by their length, then methods, headers and query parameters.
type Specificity [5]int

// SpecificityOf is that of a match with these conditions.
func SpecificityOf(uri, method *StringMatch, headers, queryParams []HeaderMatch) (out Specificity) {
	if uri != nil {
		out[1] = len(uri.Value)
		if uri.Kind == MatchExact {
			out[0] = 1
		}
	}
	if method != nil {
		out[2] = 1
	}
	out[3], out[4] = len(headers), len(queryParams)
	return out
}

// Compare puts what asks for more first.
func (s Specificity) Compare(o Specificity) int { return slices.Compare(o[:], s[:]) }
