package envoyformat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for value, want := range map[string]string{
		"":                                      "",
		"plain":                                 "",
		"100%%":                                 "",
		"%%%PROTOCOL%%%":                        "",
		"a %REQ(x-a?x-b):20% b":                 "",
		"%START_TIME(%s.%3f)%":                  "",
		"%PATH%%PATH(WQ):5%%QUERY_PARAMS:3%":    "",
		"%CEL(has(request.id) || (true))%":      "",
		"%REQ(a)b)%":                            "must be written %%",
		"100%":                                  "must be written %%",
		"%lower%":                               "must be written %%",
		"%REQ(x%":                               "must be written %%",
		"%REQ(x)%%":                             "must be written %%",
		"%NOT_ONE%":                             "the substitution %NOT_ONE% is unknown to Envoy",
		"%REQ%":                                 "needs an argument: %REQ(...)%",
		"%PROTOCOL(x)%":                         "takes no argument: %PROTOCOL%",
		"%PROTOCOL:5%":                          "takes no length",
		"%START_TIME:5%":                        "takes no length",
		"%REQ(a?b?c)%":                          `"a?b?c" is not an argument`,
		"%RESP(a b)%":                           `"a b" is not an argument`,
		"%REQ()%":                               "needs an argument",
		"%ENVIRONMENT()%":                       "needs an argument",
		"%PATH(X)%":                             `"X" is not an argument`,
		"%PATH(NQ:ORIG)%%GRPC_STATUS(NUMBER)%":  "",
		"%GRPC_STATUS(name)%":                   `"name" is not an argument`,
		"ok %PROTOCOL% then %UPSTREAM_NOTHING%": "is unknown to Envoy",
	} {
		err := Check(value)
		if want == "" {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, want, value)
		}
	}
}
