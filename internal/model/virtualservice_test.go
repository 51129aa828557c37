package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClaimNames(t *testing.T) {
	for header, want := range map[string][]string{
		"@request.auth.claims.sub":              {"sub"},
		"@Request.Auth.Claims.realm.roles":      {"realm", "roles"},
		"@request.auth.claims[realm][ro.les]":   {"realm", "ro.les"},
		"@request.auth.claims[https://a/group]": {"https://a/group"},
		"@request.auth.claims":                  nil,
		"@request.auth.claims.":                 nil,
		"@request.auth.claims[]":                nil,
		"@request.auth.claims[a][]":             nil,
		"@request.auth.claims[a":                nil,
		"@request.auth.claims.a..b":             nil,
		"@request.auth.claimsub":                nil,
		"request.auth.claims.sub":               nil,
	} {
		require.Equal(t, want, ClaimNames(header), header)
	}
}
