// Package security translates what decides who may connect and call: TLS contexts and Secrets (tls.go,
// secret.go), authorization policies (rbac*.go), tokens (jwt.go) and external authorizers (extauthz.go).
//
// If a rule cannot be applied to a connection, the translation is the stricter one: an ALLOW rule is left out,
// and a DENY rule applies without the part that cannot be compared.
//
// Start reading at RequestDecisions and ServerTLS.
package security

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// Names of filters are Envoy's. EnvoyFilters refer to them.
const (
	rbacHTTPFilter     = "envoy.filters.http.rbac"
	rbacTCPFilter      = "envoy.filters.network.rbac"
	extAuthzHTTPFilter = "envoy.filters.http.ext_authz"
	extAuthzTCPFilter  = "envoy.filters.network.ext_authz"
)

// Istio's prefixes of statistics and metadata.
const (
	tcpStats          = "tcp."
	dryRunAllowPrefix = "istio_dry_run_allow_"
	dryRunDenyPrefix  = "istio_dry_run_deny_"
	extAuthzPrefix    = "istio_ext_authz_"
)

// Decisions are the RBAC filters by which Envoy applies authorization policies, in order.
type Decisions []decision

// HTTPFilters returns the decisions as HTTP filters.
func (d Decisions) HTTPFilters() ([]*hcmv3.HttpFilter, error) {
	var out []*hcmv3.HttpFilter
	for _, s := range d {
		f, err := envoyproto.HTTPFilter(rbacHTTPFilter, &rbachttpv3.RBAC{
			Rules: s.rules, ShadowRules: s.dry, ShadowRulesStatPrefix: s.prefix,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// TCPFilters returns the decisions as network filters.
func (d Decisions) TCPFilters() ([]*listenerv3.Filter, error) {
	var out []*listenerv3.Filter
	for _, s := range d {
		f, err := envoyproto.NetworkFilter(rbacTCPFilter, &rbactcpv3.RBAC{
			StatPrefix: tcpStats, Rules: s.rules, ShadowRules: s.dry, ShadowRulesStatPrefix: s.prefix,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// decision is one RBAC filter: the rules that it enforces, and those that it only counts (dry run).
type decision struct {
	rules, dry *rbacv3.RBAC
	prefix     string // of the statistics and metadata of dry
}

// RequestDecisions returns the decisions about requests, whose paths are normalized as paths says.
func RequestDecisions(v *ir.Authorization, paths model.PathNormalization) Decisions {
	if v == nil {
		return nil
	}
	return decisionsOf(v, false, paths != model.PathsAsTheyAre && comparesPaths(v))
}

// ConnectionDecisions returns the decisions about connections.
func ConnectionDecisions(v *ir.Authorization) Decisions {
	if v == nil {
		return nil
	}
	return decisionsOf(v, true, false)
}

// decisionsOf returns the decisions of a chain's policies; tcp: of connections, else of requests. noDots: requests with the
// dot segments of dotSegment are refused.
func decisionsOf(v *ir.Authorization, tcp, noDots bool) Decisions {
	r := &rules{trustDomains: v.TrustDomains, tcp: tcp}
	var out Decisions
	for _, a := range []struct {
		action   rbacv3.RBAC_Action
		policies []*model.AuthorizationPolicy
		prefix   string
	}{
		{rbacv3.RBAC_LOG, v.Audit, ""}, {rbacv3.RBAC_DENY, v.Deny, dryRunDenyPrefix}, {rbacv3.RBAC_ALLOW, v.Allow, dryRunAllowPrefix},
	} {
		s := decision{rules: r.rbac(a.action, a.policies, false)}
		if noDots && a.action == rbacv3.RBAC_DENY {
			s.rules = refuseDotSegments(s.rules)
		}
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
