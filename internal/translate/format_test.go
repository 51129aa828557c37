package translate

import (
	"fmt"
	"slices"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

func TestCheckFormat(t *testing.T) {
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
		"ok %PROTOCOL% then %UPSTREAM_NOTHING%": "is unknown to Envoy",
	} {
		err := checkFormat(value)
		if want == "" {
			require.NoError(t, err, value)
		} else {
			require.ErrorContains(t, err, want, value)
		}
	}
}

// arguments are for substitutions that not any argument will do for.
var arguments = map[string]string{
	"CEL": "request.id", "COALESCE": `{"operators":["PROTOCOL"]}`, "COMMON_DURATION": "DS_RX_BEG:DS_RX_END:ms",
	"GRPC_STATUS": "CAMEL_STRING", "METADATA": "ROUTE:a:b", "DYNAMIC_METADATA": "a:b", "CLUSTER_METADATA": "a:b",
	"UPSTREAM_METADATA": "a:b", "PATH": "WQ", "FILTER_STATE": "a:PLAIN", "UPSTREAM_FILTER_STATE": "a:PLAIN",
	"START_TIME": "%s.%3f", "EMIT_TIME": "%s", "START_TIME_LOCAL": "%s", "EMIT_TIME_LOCAL": "%s",
}

// TestEnvoyKnowsSubstitutions: what checkFormat lets pass the real Envoy takes.
func TestEnvoyKnowsSubstitutions(t *testing.T) {
	b := newBootstrap()
	route := view.Route{DirectResponse: &model.DirectResponse{Status: 200}}
	for _, value := range allSubstitutions() {
		require.NoError(t, checkFormat(value))
		h := model.HeaderValue{Name: fmt.Sprintf("x-%d", len(route.Headers.Request.Add)), Value: value}
		route.Headers.Request.Add = append(route.Headers.Request.Add, h)
	}
	v, err := VirtualHost(&view.VirtualHost{RouteConfig: "80", Name: "a:80", Domains: []string{"*"}, Routes: []view.Route{route}})
	require.NoError(t, err)
	b.add(t, "substitutions", v)
	requireValid(t, b.message())
}

// TestEnvoyRefusesSubstitution: the list is needed.
func TestEnvoyRefusesSubstitution(t *testing.T) {
	v, err := VirtualHost(&view.VirtualHost{RouteConfig: "80", Name: "a:80", Domains: []string{"*"}, Routes: []view.Route{{
		DirectResponse: &model.DirectResponse{Status: 200},
		Headers:        model.Headers{Request: model.HeaderOps{Add: []model.HeaderValue{{Name: "a", Value: "b"}}}},
	}}})
	require.NoError(t, err)
	v.Routes = append([]*routev3.Route(nil), v.Routes...)
	v.Routes[0].RequestHeadersToAdd[0].Header.Value = "%NOT_ONE%"
	b := newBootstrap()
	b.add(t, "broken", v)
	out, err := validate(t, b.message())
	require.Error(t, err)
	require.Contains(t, out, "NOT_ONE")
}

// allSubstitutions are all names with all that they may have, in order.
func allSubstitutions() []string {
	var out []string
	for name := range plainSubstitutions {
		out = append(out, "%"+name+"%")
	}
	for name, s := range substitutions {
		argument := arguments[name]
		if argument == "" {
			argument = "x"
		}
		length := ""
		if s.length {
			length = ":5"
		}
		if s.operand != operandMust {
			out = append(out, "%"+name+length+"%")
		}
		if s.operand != operandNever {
			out = append(out, "%"+name+"("+argument+")"+length+"%")
		}
	}
	slices.Sort(out)
	return out
}
