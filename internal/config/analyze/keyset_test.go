package analyze_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/model"
)

// TestKeysThatAreFetched checks messages about the keys of jwksUri, which only a running control plane has.
func TestKeysThatAreFetched(t *testing.T) {
	for name, tc := range map[string]struct {
		keys model.KeySet
		want []string
	}{
		"all are there": {keys: model.KeySet{Keys: "{}"}},
		"none are there": {
			keys: model.KeySet{Problem: "answers 503"},
			want: []string{"error: RequestAuthentication/shop/a: spec.jwtRules[0]: the keys cannot be fetched, so every token of this rule is refused: answers 503 [MS1506]"},
		},
		"the last ones are there": {
			keys: model.KeySet{Keys: "{}", Problem: "answers 503"},
			want: []string{"error: RequestAuthentication/shop/a: spec.jwtRules[0]: the keys cannot be fetched, so the last ones are still used: answers 503 [MS1506]"},
		},
		"one cannot be read": {
			keys: model.KeySet{Keys: "{}", LeftOut: "keys[0] has no kty"},
			want: []string{"warning: RequestAuthentication/shop/a: spec.jwtRules[0]: keys of the issuer cannot be read, so tokens signed with them are refused: keys[0] has no kty; correct them at the issuer [MS1111]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			const uri = "https://a.example.com/keys"
			tc.keys.Key = model.Key{Kind: model.KindKeySet, Name: uri}
			rule := &model.RequestAuthentication{
				Meta:  model.Meta{Key: model.Key{Kind: model.KindRequestAuthentication, Namespace: "shop", Name: "a"}},
				Rules: []model.JWTRule{{KeysURI: uri}},
			}
			var got []string
			for _, p := range analyze.Check([]model.Object{rule, &tc.keys}, "cluster.local") {
				if p.Field == "spec.jwtRules[0]" {
					got = append(got, p.String()+" ["+string(p.Code)+"]")
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}
