package translate

import (
	"cmp"
	"fmt"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
)

// arguments are for substitutions that do not accept every argument.
var arguments = map[string]string{
	"CEL": "request.id", "COALESCE": `{"operators":["PROTOCOL"]}`, "COMMON_DURATION": "DS_RX_BEG:DS_RX_END:ms",
	"GRPC_STATUS": "CAMEL_STRING", "METADATA": "ROUTE:a:b", "DYNAMIC_METADATA": "a:b", "CLUSTER_METADATA": "a:b",
	"UPSTREAM_METADATA": "a:b", "PATH": "WQ", "QUERY_PARAMS": "ORIG", "REQUESTED_SERVER_NAME": "SNI_FIRST:ORIG", "TYPED_CEL": "request.id", "FILTER_STATE": "a:PLAIN", "UPSTREAM_FILTER_STATE": "a:PLAIN",
	"START_TIME": "%s.%3f", "EMIT_TIME": "%s", "START_TIME_LOCAL": "%s", "EMIT_TIME_LOCAL": "%s",
}

// TestEnvoyAcceptsSubstitutions checks that Envoy accepts all substitutions that envoyformat.Check accepts.
func TestEnvoyAcceptsSubstitutions(t *testing.T) {
	b := newBootstrap()
	rule := ir.Route{DirectResponse: &model.DirectResponse{Status: 200}}
	further := []string{
		"%PER_REQUEST_STATE(a)%", "%METADATA(LISTENER_FILTER_CHAIN)%", "%FILTER_STATE(a)%", "%FILTER_STATE(a:FIELD:b:c)%", "%COMMON_DURATION(:)%",
		"%REQUESTED_SERVER_NAME()%", "%REQUESTED_SERVER_NAME(:ORIG_OR_HOST)%", "%REQUESTED_SERVER_NAME(HOST_FIRST:)%", "%QUERY_PARAMS(DECODED)%",
		"%REQ(:x?x.y_z~|^`'*&$#!+-)%", "%REQ(x):18446744073709551615%", "%START_TIME(%Q)%",
		`%COALESCE({"operators":["PROTOCOL",{"command":"REQ","param":"x?y","max_length":5},{"command":"CEL","param":"request.id"}]}):9%`,
	}
	for _, value := range append(envoyformat.Forms(argument), further...) {
		require.NoError(t, envoyformat.CheckHeader(value))
		h := model.HeaderValue{Name: fmt.Sprintf("x-%d", len(rule.Headers.Request.Add)), Value: value}
		rule.Headers.Request.Add = append(rule.Headers.Request.Add, h)
	}
	v, _, err := route.VirtualHost(&ir.VirtualHost{RouteConfig: "80", Name: "a:80", Domains: []string{"*"}, Routes: []ir.Route{rule}})
	require.NoError(t, err)
	b.add(t, "substitutions", v)
	requireValid(t, b.message())
}

// TestEnvoyRefusesSubstitution checks that Envoy refuses an unknown substitution, so that a list is necessary.
func TestEnvoyRefusesSubstitution(t *testing.T) {
	v, _, err := route.VirtualHost(&ir.VirtualHost{RouteConfig: "80", Name: "a:80", Domains: []string{"*"}, Routes: []ir.Route{{
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

func argument(name string) string { return cmp.Or(arguments[name], "x") }
