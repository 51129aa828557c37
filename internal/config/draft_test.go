package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/model"
)

// TestDraft checks what is left of objects with errors, and which problems may be consequences.
func TestDraft(t *testing.T) {
	const head = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec:\n  hosts: [a]\n"
	for name, tc := range map[string]struct {
		spec     string
		problems []string // fields
		rules    int      // of the draft; 0: none
	}{
		"an unknown field":             {"  http: [{timout: 1s, route: [{destination: {host: a}}]}]\n", []string{"spec.http[0].timout"}, 1},
		"an error behind it":           {"  http: [{timout: 1s, retries: {attempts: -1}, route: [{destination: {host: a}}]}]\n", []string{"spec.http[0].timout", "spec.http[0].retries.attempts"}, 1},
		"a misspelt field":             {"  http: [{route: [{destination: {hsot: a}}]}]\n", []string{"spec.http[0].route[0].destination.hsot"}, 1},
		"a consequence":                {"  http: [{route: [{destination: {name: a}}]}]\n", []string{"spec.http[0].route[0].destination.name"}, 1},
		"an error of a corrected one":  {"  http: [{route: [{destination: {host: a}, weigth: all}]}]\n", []string{"spec.http[0].route[0].weigth", "spec.http[0].route[0].weight"}, 1},
		"one rule without a list":      {"  http: {timout: 1s, route: {destination: {host: a}}}\n", []string{"spec.http", "spec.http[0].route", "spec.http[0].timout"}, 1},
		"several values":               {"  http: [{route: [{destination: {host: a, subset: 1, port: {number: 70000}}}]}]\n", []string{"spec.http[0].route[0].destination.subset", "spec.http[0].route[0].destination.port.number"}, 1},
		"values that do not fit":       {"  http: [{route: [{destination: {host: a}, weight: 0}, {destination: {host: b}, weight: 0}]}]\n", []string{"spec.http[0].route"}, 1},
		"a rule that is not an object": {"  http: [reviews, {route: [{destination: {host: a}}]}]\n", []string{"spec.http[0]"}, 1},
		"a value":                      {"  http: [{timeout: 10us, route: [{destination: {host: a}}]}]\n", []string{"spec.http[0].timeout"}, 1},
		"no error":                     {"  http: [{route: [{destination: {host: a}}]}]\n", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var n yaml.Node
			require.NoError(t, yaml.Unmarshal([]byte(head+tc.spec), &n))
			got := Decoder{}.FromNode(&n)
			var fields []string
			for _, p := range got.Problems {
				fields = append(fields, p.Field)
			}
			require.Equal(t, tc.problems, fields)
			if tc.rules == 0 {
				require.Nil(t, got.Draft)
				return
			}
			require.NotNil(t, got.Draft)
			require.Nil(t, got.Object, "it is not in force")
			require.Len(t, got.Draft.Object.(*model.VirtualService).HTTP, tc.rules)
			for _, p := range got.Problems {
				require.True(t, got.Draft.Concerns(p), p)
			}
		})
	}
}
