package envoyformat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for value, want := range map[string]string{
		"":                                   "",
		"plain":                              "",
		"100%%":                              "",
		"%%%PROTOCOL%%%":                     "",
		"a %REQ(x-a?x-b):20% b":              "",
		"%START_TIME(%s.%3f)%":               "",
		"%PATH%%PATH(WQ):5%%QUERY_PARAMS:3%": "",
		"%CEL(has(request.id) || (true))%":   "",
		"%REQUEST_HEADER(x-a?x-b):20%%RESPONSE_HEADER(x)%%RESPONSE_TRAILER(x)%":                                                 "",
		"%TYPED_CEL(request.id):5%%LISTENER_NAME%%DOWNSTREAM_CX_RTT%%ROUTE_RESOLUTION_TIME_US%%ROUTE_RESOLUTION_COUNT%":         "",
		"%UPSTREAM_TLS_GROUP%%UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT%%UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT%":               "",
		"%DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256%%DOWNSTREAM_PEER_ISSUER_SERIAL%%DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID%":  "",
		"%REQUESTED_SERVER_NAME%%REQUESTED_SERVER_NAME()%%REQUESTED_SERVER_NAME(SNI_FIRST:ORIG)%%REQUESTED_SERVER_NAME(:HOST)%": "",
		"%QUERY_PARAMS(ORIG)%%QUERY_PARAMS(DECODED):5%":                                                                         "",
		"%REQUEST_HEADER%":                     "needs an argument: %REQUEST_HEADER(...)%",
		"%RESPONSE_TRAILER(a?b?c)%":            `"a?b?c" is not an argument`,
		"%TYPED_CEL(foo(1))%":                  "the expression of %TYPED_CEL(foo(1))%: \"foo\" is not a function",
		"%LISTENER_NAME:5%":                    "takes no length",
		"%REQUESTED_SERVER_NAME(ORIG)%":        `"ORIG" is not an argument`,
		"%REQUESTED_SERVER_NAME(SNI_FIRST):5%": "takes no length",
		"%QUERY_PARAMS(decoded)%":              `"decoded" is not an argument`,
		"%REQ(a)b)%":                           "must be written %%",
		"100%":                                 "must be written %%",
		"%lower%":                              "must be written %%",
		"%REQ(x%":                              "must be written %%",
		"%REQ(x)%%":                            "must be written %%",
		"%NOT_ONE%":                            "the substitution %NOT_ONE% is unknown to Envoy",
		"%REQ%":                                "needs an argument: %REQ(...)%",
		"%PROTOCOL(x)%":                        "takes no argument: %PROTOCOL%",
		"%PROTOCOL:5%":                         "takes no length",
		"%START_TIME:5%":                       "takes no length",
		"%REQ(a?b?c)%":                         `"a?b?c" is not an argument`,
		"%RESP(a b)%":                          `"a b" is not an argument`,
		"%REQ()%":                              "needs an argument",
		"%ENVIRONMENT()%":                      "needs an argument",
		"%PATH(X)%":                            `"X" is not an argument`,
		"%PATH(NQ:ORIG)%%GRPC_STATUS(NUMBER)%": "",
		"%GRPC_STATUS(name)%":                  `"name" is not an argument`,
		"%METADATA(ROUTE)%%METADATA(DYNAMIC:a:b:c):5%":                               "",
		"%METADATA(FOO:a:b)%":                                                        `"FOO:a:b" is not an argument`,
		"%FILTER_STATE(a)%%FILTER_STATE(a:PLAIN)%%UPSTREAM_FILTER_STATE(a:FIELD:x)%": "",
		"%FILTER_STATE(a:b)%":                                                        `"a:b" is not an argument`,
		"%FILTER_STATE(a:FIELD)%":                                                    `"a:FIELD" is not an argument`,
		"%UPSTREAM_FILTER_STATE(a:PLAIN:x)%":                                         `"a:PLAIN:x" is not an argument`,
		"%COMMON_DURATION(DS_RX_BEG:DS_RX_END)%%COMMON_DURATION(a:b:us)%":            "",
		"%COMMON_DURATION(x)%":                                                       `"x" is not an argument`,
		"%COMMON_DURATION(a:b:s)%":                                                   `"a:b:s" is not an argument`,
		"%CEL(1+)%":                                                                  "the expression of %CEL(1+)%: a value is missing",
		"%CEL(foo(1))%":                                                              `"foo" is not a function`,
		"%CEL(string(response.code))%":                                               `"string" is not a function`,
		`%COALESCE({"operators":["PROTOCOL",{"command":"REQ","param":"x?y","max_length":5}]}):9%`: "",
		"%COALESCE(x)%":                                                              "is not an object with a list of operators",
		`%COALESCE({"operators":[]})%`:                                               "has no operators",
		`%COALESCE([])%`:                                                             "is not an object",
		`%COALESCE({"operators":["NOPE"]})%`:                                         "operators[0]: the substitution %NOPE% is unknown",
		`%COALESCE({"operators":["REQ"]})%`:                                          "needs an argument",
		`%COALESCE({"operators":[1]})%`:                                              "1 is neither a name nor an object",
		`%COALESCE({"operators":[{"param":"x"}]})%`:                                  "unknown to Envoy",
		`%COALESCE({"operators":[{"command":"PROTOCOL","param":"x"}]})%`:             "takes no argument",
		`%COALESCE({"operators":[{"command":"REQ","param":null}]})%`:                 "param is not a text",
		`%COALESCE({"operators":[{"command":"REQ","param":"x","max_length":0}]})%`:   "max_length is not a positive number: 0",
		`%COALESCE({"operators":[{"command":"REQ","param":"x","max_length":"5"}]})%`: "max_length is not a positive number",
		`%COALESCE({"operators":[{"command":"METADATA","param":"FOO:a"}]})%`:         `"FOO:a" is not an argument`,
		"%REQ(:path)%%TRAILER(x-a?:b)%":                                              "",
		"%REQ(:bad:name)%":                                                           `":bad:name" is not an argument`,
		"%RESP(x/y)%":                                                                `"x/y" is not an argument`,
		"%REQ(x):18446744073709551615%":                                              "",
		"%REQ(x):18446744073709551616%":                                              "the length 18446744073709551616 of %REQ% is too large",
		"%START_TIME(%Y%n)%":                                                         "has a newline",
		"%DOWNSTREAM_PEER_CERT_V_END(%_3En)%":                                        "has a newline",
		"%PER_REQUEST_STATE(a)%":                                                     "is unknown to Envoy",
		"ok %PROTOCOL% then %UPSTREAM_NOTHING%":                                      "is unknown to Envoy",
	} {
		err := Check(value)
		if want == "" {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, want, value)
		}
	}
}

// TestCheckHeader checks the substitution that Envoy knows in headers only.
func TestCheckHeader(t *testing.T) {
	require.NoError(t, CheckHeader("%PER_REQUEST_STATE(a)% %PROTOCOL%"))
	require.ErrorContains(t, CheckHeader("%PER_REQUEST_STATE%"), "needs an argument")
	require.ErrorContains(t, CheckHeader("%PER_REQUEST_STATE(a:b)%"), "is not an argument")
	require.ErrorContains(t, CheckHeader("%PER_REQUEST_STATE(a):5%"), "takes no length")
	require.ErrorContains(t, CheckHeader("%NOT_ONE%"), "is unknown to Envoy")
}
