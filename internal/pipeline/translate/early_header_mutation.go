package translate

import (
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// setEarly changes headers before anything looks at a request, also the choice of its route: what only tokens may tell
// goes, and the bucket and who calls are set.
func setEarly(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) error {
	var list []*mutationv3.HeaderMutation
	if v.Gateway && v.JWT != nil {
		list = forgetTold(v.JWT)
	}
	if v.BucketBits > 0 {
		list = append(list, overwrite(scopeHeader, routeshard.KeyFormat(v.RouteConfig, v.BucketBits)))
	}
	if v.Telemetry != nil && v.Telemetry.TellsPeer {
		list = append(list, tellPeer)
	}
	if len(list) == 0 {
		return nil
	}
	m := &earlyv3.HeaderMutation{Mutations: list}
	if err := m.Validate(); err != nil {
		return err
	}
	early, err := pack(m)
	out.EarlyHeaderMutationExtensions = []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation", TypedConfig: early,
	}}
	return err
}

// overwrite sets a header, whatever was said under its name.
func overwrite(header, format string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: header, Value: format},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}
