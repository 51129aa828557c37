package cel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"has(request.headers.x) && !(request.method in ['GET', \"HEAD\",])": "",
		"has(request.headers['x'])":                                         "has takes a field",
		"has(request)":                                                      "has takes a field",
		"has(request.a == request.b)":                                       "has takes a field",
		"has(filter_state['a.b'].c)":                                        "",
		"size()":                                                            "size takes one argument, not 0",
		"request.host.contains('a', 'b')":                                   "contains takes 1 arguments, not 2",
		"request.time.getHours() > request.time.getHours('CET')":            "",
		`request.host == '\d'`:                                              "a backslash where CEL has none",
		`request.host.matches('\d')`:                                        "a backslash where CEL has none",
		"99999999999999999999 == 1":                                         "too large a number",
		"9223372036854775807 > -9223372036854775808 || 1e999 > 1.0 || 18446744073709551615u > 1u":               "",
		"request.host.matches('[0-9a-f-]{36}')":                                                                 "too large a regular expression",
		`request.host.matches(r'\pL')`:                                                                          "too large a regular expression",
		`request.host.matches(r'\p{Greek}[^/]+.*')`:                                                             "",
		"request.host.matches('[a-zA-Z0-9._-]+@[a-zA-Z0-9.-]+[.][a-zA-Z]{2,}')":                                 "",
		"response.code >= 400":                                                                                  "",
		"response.code >= 500 || (connection.mtls && request.url_path.startsWith('/x'))":                        "",
		`request.headers["x-user"] == 'a"b' ? "yes" : 'no'`:                                                     "",
		"{'a': 1u, 'b': -0x1F}.size() > .5e3":                                                                   "",
		`request.url_path.matches('^/a\\d("x")?\'$') && request.host.matches(request.path)`:                     "",
		"[1, 2].exists(x, x == response.code)":                                                                  `"exists" iterates over lists`,
		`request.url_path.matches('/a(')`:                                                                       "no RE2 regular expression",
		`request.url_path.matches("/a" + '(')`:                                                                  "",
		`request.url_path.matches(R'\d(')`:                                                                      "no RE2 regular expression",
		`metadata.filter_metadata['a'].b.matches(r"^\d+$")`:                                                     "",
		`re.extract(request.path, '/([^/]*)', r'\1') == 'a'`:                                                    "",
		"re.capture(request.path, '/(.*)').startsWith('a')":                                                     "",
		"re.captureN(request.path, '/(?P<a>.*)')['a'] == 'b' && has(re.captureN(request.path, '/(?P<a>.*)').a)": "",
		"re.capture(request.path)":                                                                              "re.capture takes 2 arguments, not 1",
		"re.matches(request.path, 'a')":                                                                         "re.matches is not a function: use re.capture, re.captureN, re.extract",
		"re.capture == 'a'":                                                                                     "re.capture is not a function",
		"re.capture(foo(1), 'a') == 'a'":                                                                        `"foo" is not a function`,
		"re == 'a'":                                                                                             `"re" is not an attribute`,
		"!!true":                                                                                                "",
		"":                                                                                                      "it is empty",
		"response.code >=":                                                                                      "a value is missing before the end",
		"response.code = 5":                                                                                     `"= 5" is not expected`,
		"(response.code > 5":                                                                                    `")" is missing before the end`,
		"response.code > 5)":                                                                                    `")" is not expected`,
		"request.headers['x":                                                                                    "does not end",
		"upstream_peer.labels['app'].value":                                                                     "Istio's own filters",
		"user.name":                                                                                             `"user" is not an attribute`,
		"string(response.code) == '200'":                                                                        `"string" is not a function`,
		"lower(request.host)":                                                                                   `"lower" is not a function`,
		"request.host.lower()":                                                                                  `"lower" is not a method`,
		"x == 1":                                                                                                `"x" is not an attribute`,
		"true ? 1":                                                                                              `":" is missing`,
		"request. == 1":                                                                                         "a name is missing",
		"{'a' 1}":                                                                                               `":" is missing`,
		"a.all(1, true)":                                                                                        `"a" is not an attribute`,
		"[1].all(1, true)":                                                                                      `"all" iterates over lists`,
		strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200):                                               "nests deeper",
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
