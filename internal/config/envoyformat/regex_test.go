package envoyformat

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sizes are numbers of instructions of RE2's programs, the larger of UTF-8 and Latin-1 (google-re2 1.1.20251105,
// RE2::ProgramSize). Envoy 1.40 compiles Latin-1: the first one has 114004 instructions there.
var sizes = map[string]int{
	`(\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL\pL){1000}`: 114004,
	``:                                   4,
	`a`:                                  5,
	`abc`:                                7,
	`.`:                                  12,
	`.*`:                                 12,
	`(?s:.)`:                             11,
	`[a-z]+`:                             6,
	`[^/]+`:                              13,
	`[^/]{1,255}`:                        2298,
	`\w{1000}`:                           3004,
	`.{1000}`:                            8004,
	`\pL`:                                1200,
	`\PL`:                                1202,
	`(?i:\pL)`:                           1201,
	`\p{Han}{9}`:                         724,
	`\P{Han}`:                            79,
	`[^\pL]`:                             1202,
	`\p{Greek}{100}`:                     6204,
	`(?i:straße)`:                        16,
	`(?i:k)`:                             8,
	`é日`:                                 9,
	`[à-ü]`:                              6,
	`[一-鿿]`:                              9,
	`[𐀀-𐿿]`:                              8,
	`(a|b|c)*`:                           7,
	`(foo|foobar|fo+)?`:                  18,
	`(\pL|.)`:                            14,
	`(\pL|\p{Han}|.|[^/])*?`:             13,
	`\pL{16}`:                            19140,
	`\pL{26}`:                            31100,
	`\pL{27}`:                            32296,
	`\pL{27,}`:                           32297,
	`(\pL|.){30}`:                        304,
	`(\pL{5}){6}`:                        35896,
	`(?:(?:a?|b*)+|c{3,9}){50}`:          1154,
	`(?:^a$|\bb\B)*`:                     10,
	`(?:[^a]|\PL|[[:^alpha:]]|[]|]){40}`: 324,
	`(?:\Q|[\E|\pL|.){30}`:               304,
	`((a)(b)){100}`:                      804,
	`(?:.*a){500}`:                       4504,
	`(?:(?:(?:(?:^)*)*?){160})*`:         26564,
	`(?:(?:(?:(?:^)*)*?){170})*`:         29924,
	`((?:(?:(^)|^)(?:(a))?(?:(?:a|))*?)+|(?:(?:(?:\b)*)*?){30}|$)`: 1105,
	`(?:(?:(?:(?:(?:^){0,})*?){9,80})*)+?`:                         13201,
	`([a-z0-9-]+\.){0,127}`:                                        1020,
}

// TestRegexEstimate checks that no estimate is below the size of RE2's program.
func TestRegexEstimate(t *testing.T) {
	for pattern, size := range sizes {
		require.GreaterOrEqual(t, programSize(pattern), size, pattern)
	}
}

func TestRegexSize(t *testing.T) {
	for _, pattern := range []string{
		".*", "/api/v[0-9]+/.*", `(\w+\.)*example\.com`, `\pL{1,16}`, "[^/]{1,255}", strings.Repeat("/a[0-9]+(b|c)?", 64), "a{1000}",
		`([a-z0-9-]+\.){0,127}`, `((a)?(b)?(^c$)?)*`,
	} {
		require.NoError(t, CheckRegex(pattern), pattern)
	}
	for _, pattern := range []string{
		`(` + strings.Repeat(`\pL`, 16) + `){1000}`, `(\pL|.){30}`, `(\pL{5}){6}`, `(?i:\pL){30}`, `(?:[^a]|\PL|[[:^alpha:]]|[]|]){40}`,
		`(?:.{30}){33}(?:.{30}){33}(?:.{30}){33}(?:.{30}){33}`, `(?:\Q|[\E|\pL|.){30}`, `\pL{27,}`, strings.Repeat("a", 40000),
		`(?:(?:(?:(?:^)*)*?){178})*`,
	} {
		require.ErrorContains(t, CheckRegex(pattern), "the regular expression is too large", pattern)
	}
	require.ErrorContains(t, CheckRegex("("), "missing closing )")
	require.ErrorContains(t, CheckRegex("(a{1000}){1000}"), "invalid repeat count")
}
