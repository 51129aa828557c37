package model

import (
	"slices"
	"strings"
)

// ClaimPrefix starts names of "headers" that are claims of a valid token, for routes of gateways.
const ClaimPrefix = "@request.auth.claims"

// IsClaim tells whether what a route compares under a header's name is a claim. Case does not matter, as in Istio.
func IsClaim(header string) bool {
	return len(header) >= len(ClaimPrefix) && strings.EqualFold(header[:len(ClaimPrefix)], ClaimPrefix)
}

// ClaimNames are the names of a claim and of those within it: of "@request.auth.claims[realm][roles]", or with dots
// of "@request.auth.claims.realm.roles". nil: it names none.
func ClaimNames(header string) []string {
	if !IsClaim(header) {
		return nil
	}
	rest, separator := header[len(ClaimPrefix):], "]["
	inner, ok := strings.CutPrefix(rest, "[")
	if ok {
		inner, ok = strings.CutSuffix(inner, "]")
	} else {
		separator = "."
		inner, ok = strings.CutPrefix(rest, ".")
	}
	names := strings.Split(inner, separator)
	if !ok || slices.Contains(names, "") {
		return nil
	}
	return names
}
