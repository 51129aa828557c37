package expression

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"response.code >= 400": "",
		"response.code >= 500 || (connection.mtls && request.url_path.startsWith('/x'))": "",
		`request.headers["x-user"] == 'a"b' ? "yes" : 'no'`:                              "",
		"has(request.headers['x']) && !(request.method in ['GET', \"HEAD\",])":           "",
		"{'a': 1u, 'b': -0x1F}.size() > .5e3":                                            "",
		"[1, 2].exists(x, x == response.code)":                                           "",
		`metadata.filter_metadata['a'].b.matches(r"^\d+$")`:                              "",
		"!!true":                            "",
		"":                                  "it is empty",
		"response.code >=":                  "a value is missing before the end",
		"response.code = 5":                 `"= 5" is not expected`,
		"(response.code > 5":                `")" is missing before the end`,
		"response.code > 5)":                `")" is not expected`,
		"request.headers['x":                "does not end",
		"upstream_peer.labels['app'].value": "Istio's own filters",
		"user.name":                         `"user" is no attribute`,
		"lower(request.host)":               `"lower" is no function`,
		"request.host.lower()":              `"lower" is no method`,
		"x == 1":                            `"x" is no attribute`,
		"true ? 1":                          `":" is missing`,
		"request. == 1":                     "a name is missing",
		"{'a' 1}":                           `":" is missing`,
		"a.all(1, true)":                    `"a" is no attribute`,
		"[1].all(1, true)":                  "a variable is missing",
		strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200): "nests deeper",
	} {
		err := Check(text)
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("response.code >= 400 && [1].map(x, x) == {'a': -1}")
	f.Fuzz(func(_ *testing.T, text string) { _ = Check(text) })
}
