package preview

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokensOfFetchedKeys checks that tokens whose keys a running mesh fetches count as signed, and that reports do not have them.
func TestTokensOfFetchedKeys(t *testing.T) {
	part := base64.RawURLEncoding.EncodeToString
	token := part([]byte(`{"alg":"RS256","kid":"a","typ":"JWT"}`)) + "." + part([]byte(`{"iss":"https://iss","sub":"u","exp":4102444800,"role":"admin"}`)) + "." + part([]byte("signature"))
	authentication := "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: j, namespace: shop}\n" +
		"spec: {selector: {matchLabels: {app: reviews}}, jwtRules: [{issuer: \"https://iss\", jwksUri: \"https://iss.example.com/jwks\"}]}"
	deny := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\n" +
		"spec: {selector: {matchLabels: {app: reviews}}, action: DENY, rules: [{when: [{key: \"request.auth.claims[role]\", values: [admin]}]}]}"
	const note = "tokens of https://iss count as signed, since keys of a jwksUri are not fetched: write keys into jwks to check signatures"
	for name, tc := range map[string]struct {
		before, after []string
		differ        int
	}{
		"an issuer":           {shop(), shop(authentication), 0},
		"a policy for claims": {shop(authentication), shop(authentication, deny), 1},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{
				Before: side(t, tc.before...), After: side(t, tc.after...),
				Calls: []Call{{From: "frontend-v1.shop", URL: "http://reviews:9080/", Headers: map[string]string{"Authorization": "Bearer " + token}}},
			}
			Populate(&in.Before, &in.After, true)
			r, err := Compute(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, tc.differ, r.Differ)
			require.Contains(t, r.Notes, note)
			for _, d := range r.Differences {
				require.Regexp(t, `^http://reviews:9080/ Authorization: Bearer \(hidden, SHA-256 [0-9a-f]{8}\)$`, d.Calls[0].String())
			}
		})
	}
}
