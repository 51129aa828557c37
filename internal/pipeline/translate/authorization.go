package translate

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Names of filters are Envoy's, to which EnvoyFilters refer.
const (
	rbacHTTPFilter     = "envoy.filters.http.rbac"
	rbacTCPFilter      = "envoy.filters.network.rbac"
	extAuthzHTTPFilter = "envoy.filters.http.ext_authz"
	extAuthzTCPFilter  = "envoy.filters.network.ext_authz"
)

// Prefixes of statistics and of metadata, as Istio's.
const (
	tcpStats          = "tcp."
	dryRunAllowPrefix = "istio_dry_run_allow_"
	dryRunDenyPrefix  = "istio_dry_run_deny_"
	extAuthzPrefix    = "istio_ext_authz_"
)

// httpPolicy are the filters of a chain's policies: external authorizers, tokens, and then
// what Envoy decides itself, which may need what tokens say. As in Istio.
func httpPolicy(v *ir.HTTPChain) ([]*hcmv3.HttpFilter, error) {
	out, err := customHTTP(v.Authorization)
	if err != nil {
		return nil, err
	}
	if v.JWT != nil && len(v.JWT.Rules) > 0 {
		f, err := checkedHTTPFilter(jwtFilterName, jwtFilter(v.JWT, v.Gateway))
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	if v.Wasm != nil {
		if out, err = between(out, v.Wasm.Authn, v.Wasm.Authz); err != nil {
			return nil, err
		}
	}
	for _, s := range steps(v.Authorization, false) {
		f, err := checkedHTTPFilter(rbacHTTPFilter, &rbachttpv3.RBAC{
			Rules: s.rules, ShadowRules: s.dry, ShadowRulesStatPrefix: s.prefix,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// tcpPolicy are the network filters of a chain's policies. What comes before what Envoy decides
// itself comes after external authorizers, as in Istio.
func tcpPolicy(v *ir.Authorization, decisions []step, before []*listenerv3.Filter) ([]*listenerv3.Filter, error) {
	out, err := customTCP(v)
	if err != nil {
		return nil, err
	}
	out = append(out, before...)
	for _, s := range decisions {
		f, err := networkFilter(rbacTCPFilter, &rbactcpv3.RBAC{
			StatPrefix: tcpStats, Rules: s.rules, ShadowRules: s.dry, ShadowRulesStatPrefix: s.prefix,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// step is what one RBAC filter enforces, and what it only counts.
type step struct {
	rules, dry *rbacv3.RBAC
	prefix     string // of what is only counted
}

// steps are the decisions that Envoy makes itself, in order.
func steps(v *ir.Authorization, tcp bool) []step {
	if v == nil {
		return nil
	}
	r := &rules{trustDomains: v.TrustDomains, tcp: tcp}
	var out []step
	for _, a := range []struct {
		action   rbacv3.RBAC_Action
		policies []*model.AuthorizationPolicy
		prefix   string
	}{
		{rbacv3.RBAC_LOG, v.Audit, ""}, {rbacv3.RBAC_DENY, v.Deny, dryRunDenyPrefix}, {rbacv3.RBAC_ALLOW, v.Allow, dryRunAllowPrefix},
	} {
		s := step{rules: r.rbac(a.action, a.policies, false)}
		if a.prefix != "" {
			s.dry = r.rbac(a.action, a.policies, true)
		}
		if s.dry != nil {
			s.prefix = a.prefix
		}
		if s.rules != nil || s.dry != nil {
			out = append(out, s)
		}
	}
	return out
}

// checkedHTTPFilter packs a filter, after Envoy's own check of its configuration.
func checkedHTTPFilter(name string, config validated) (*hcmv3.HttpFilter, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	packed, err := pack(config)
	if err != nil {
		return nil, err
	}
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed}}, nil
}
