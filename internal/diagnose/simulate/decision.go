package simulate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	extauthztcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// The keys of metadata that filters write for later ones, whatever their names in a chain are.
const (
	rbacHTTPMetadata = "envoy.filters.http.rbac"
	rbacTCPMetadata  = "envoy.filters.network.rbac"
	jwtMetadata      = "envoy.filters.http.jwt_authn"
)

// Types of network filters that can refuse a connection.
const (
	rbacTCPType     = "envoy.extensions.filters.network.rbac.v3.RBAC"
	extAuthzTCPType = "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz"
)

// Decision is the result of a policy for a call, or of the absence of one.
type Decision struct {
	// Action is Istio's action: ALLOW, DENY, AUDIT or CUSTOM. It is JWT if a token is wrong.
	Action string `yaml:"action" json:"action"`
	// Policy is the "namespace/name" of the policy that matches the call; empty: none matches.
	Policy string `yaml:"policy,omitempty" json:"policy,omitempty"`
	// Rule is the index of the policy's rule that matches, from 0; nil: none matches.
	Rule *int `yaml:"rule,omitempty" json:"rule,omitempty"`
	// Among are the policies of which one would have to match, and none does.
	Among   []string `yaml:"among,omitempty" json:"among,omitempty"`
	Refuses bool     `yaml:"refuses,omitempty" json:"refuses,omitempty"`
	DryRun  bool     `yaml:"dryRun,omitempty" json:"dryRun,omitempty"` // it counts the call only
	// Asks is the cluster of the external authorizer that decides. The simulator assumes that it allows the
	// call, if the cluster has endpoints.
	Asks  string `yaml:"asks,omitempty" json:"asks,omitempty"`
	Cause string `yaml:"cause,omitempty" json:"cause,omitempty"`
}

// istioPolicy matches Istio's names of policies in RBAC filters.
var istioPolicy = regexp.MustCompile(`ns\[([^]]*)\]-policy\[([^]]*)\]-rule\[(\d+)\](` + severalProviders + `|-deny-due-to-bad-CUSTOM-action)?$`)

// severalProviders ends the names of policies whose workload has policies of several providers, which is not allowed.
const severalProviders = "-several-providers"

// istioAuthorizer matches the names for action CUSTOM. A filter that itself refuses has no provider.
var istioAuthorizer = regexp.MustCompile(`^istio-ext-authz-(.+?)-ns\[`)

// dotSegmentPolicy is the name of the policy that refuses dot segments with parameters, which policies on paths would not
// take for what many servers serve.
const dotSegmentPolicy = "dot-segment-with-parameters"

// named parses the name of an RBAC policy.
func (d Decision) named(policy string) Decision {
	d.Policy = policy
	if m := istioPolicy.FindStringSubmatch(policy); m != nil {
		d.Policy = m[1] + "/" + m[2]
		if n, err := strconv.Atoi(m[3]); err == nil {
			d.Rule = new(n)
		}
	}
	return d
}

func among(rules *rbacv3.RBAC) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		if p := (Decision{}).named(name).Policy; !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// rbacFilter has what the RBAC filters of HTTP and TCP have in common.
type rbacFilter interface {
	GetRules() *rbacv3.RBAC
	GetShadowRules() *rbacv3.RBAC
	GetShadowRulesStatPrefix() string
}

var (
	_ rbacFilter = &rbachttpv3.RBAC{}
	_ rbacFilter = &rbactcpv3.RBAC{}
)

// runRBAC reports whether the filter refuses a call, and notes why.
func (r *request) runRBAC(filter string, f rbacFilter, res *Result) (refused bool, err error) {
	if shadow := f.GetShadowRules(); shadow != nil {
		policy, passes, err := r.evaluate(shadow)
		if err != nil {
			return false, err
		}
		prefix := f.GetShadowRulesStatPrefix()
		if policy != "" {
			r.leave(filter, prefix+effectivePolicy, policy)
		}
		if prefix != "istio_ext_authz_" { // the next filter of that policy notes the result
			res.note(shadow, policy, passes, true)
		}
	}
	if f.GetRules() == nil {
		return false, nil
	}
	policy, passes, err := r.evaluate(f.GetRules())
	if err == nil {
		res.note(f.GetRules(), policy, passes, false)
	}
	return !passes, err
}

// note adds a decision, unless it is empty.
func (r *Result) note(rules *rbacv3.RBAC, policy string, passes, dryRun bool) {
	d := Decision{Action: rules.GetAction().String(), Refuses: !passes, DryRun: dryRun}
	switch {
	case policy == dotSegmentPolicy:
		d.Cause = "the path has a dot segment with parameters, such as /..;x/, which may lead around policies on paths"
	case policy != "":
		d = d.named(policy)
	case passes:
		return
	default:
		d.Among = among(rules)
	}
	if rules.GetAction() == rbacv3.RBAC_LOG {
		d.Action = "AUDIT"
	}
	if m := istioAuthorizer.FindStringSubmatch(policy); m != nil && rules.GetAction() == rbacv3.RBAC_DENY {
		d.Action = "CUSTOM"
		d.Cause = fmt.Sprintf("external authorizer %q: not found: add it to extensionProviders, with a service and port that exist", m[1])
		if strings.HasSuffix(policy, severalProviders) {
			d.Cause = fmt.Sprintf("external authorizer %q: other policies of the workload name other providers: use one, or set PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS=true", m[1])
		}
	}
	r.Decisions = append(r.Decisions, d)
}

// RuleText returns ", rules[0]", or nothing if no rule matches.
func (d *Decision) RuleText() string {
	if d.Rule == nil {
		return ""
	}
	return fmt.Sprintf(", rules[%d]", *d.Rule)
}

// asked notes that an authorizer is asked, if the filter applies to the call. refused is set if the cluster
// has no endpoints.
func (w *World) asked(enabled *matcherv3.MetadataMatcher, cluster string, failOpen bool, r *request, res *Result) (refused bool, err error) {
	if enabled != nil {
		if ok, err := r.matchesMetadata(enabled); !ok || err != nil {
			return false, err
		}
	}
	d := Decision{Action: "CUSTOM", Asks: cluster}
	if len(enabled.GetPath()) > 0 {
		policy, _ := r.metadata[enabled.GetFilter()][enabled.GetPath()[0].GetKey()].(string)
		d = d.named(policy)
	}
	if !w.HasEndpoints(cluster) {
		d.Refuses, d.Cause = !failOpen, "no external authorizer"
	}
	res.Decisions = append(res.Decisions, d)
	return d.Refuses, nil
}

// runExtAuthz answers if no authorizer can be reached.
func (w *World) runExtAuthz(x *exchange, f *extauthzv3.ExtAuthz) (answered bool, err error) {
	cluster := f.GetGrpcService().GetEnvoyGrpc().GetClusterName()
	if h := f.GetHttpService(); h != nil {
		cluster = h.GetServerUri().GetCluster()
	}
	refused, err := w.asked(f.GetFilterEnabledMetadata(), cluster, f.GetFailureModeAllow(), x.request, x.res)
	if !refused || err != nil {
		return false, err
	}
	x.res.Status, x.res.Reason = 403, "no answer from the external authorizer"
	if c := f.GetStatusOnError().GetCode(); c != 0 {
		x.res.Status = int(c)
	}
	return true, nil
}

// runNetworkFilter reports whether a filter before the terminal one refuses the connection. Unknown filters
// let everything pass.
func (w *World) runNetworkFilter(name string, msg any, r *request, res *Result) (refused bool, err error) {
	switch f := msg.(type) {
	case *rbactcpv3.RBAC:
		refused, err = r.runRBAC(rbacTCPMetadata, f, res)
	case *extauthztcpv3.ExtAuthz:
		refused, err = w.asked(f.GetFilterEnabledMetadata(), f.GetGrpcService().GetEnvoyGrpc().GetClusterName(), f.GetFailureModeAllow(), r, res)
	}
	if err != nil {
		return false, fmt.Errorf("filter %s: %w", name, err)
	}
	if refused {
		res.Closed = "refused by policy"
	}
	return refused, nil
}

// runNetworkFilters runs the filters before the terminal one.
func (w *World) runNetworkFilters(filters []*listenerv3.Filter, r *request, res *Result) (refused bool, err error) {
	for _, f := range filters {
		if t := typeName(f.GetTypedConfig()); t != rbacTCPType && t != extAuthzTCPType {
			continue
		}
		msg, err := unpack(f.GetTypedConfig())
		if err != nil {
			return false, fmt.Errorf("filter %s: %w", f.GetName(), err)
		}
		if refused, err := w.runNetworkFilter(f.GetName(), msg, r, res); refused || err != nil {
			return refused, err
		}
	}
	return false, nil
}

// runPolicy runs one of the HTTP filters that decide about requests.
func (x *exchange) runPolicy(f *hcmv3.HttpFilter) (answered bool, err error) {
	msg, err := unpack(f.GetTypedConfig())
	if err != nil {
		return false, fmt.Errorf("filter %s: %w", f.GetName(), err)
	}
	switch cfg := msg.(type) {
	case *jwtv3.JwtAuthentication:
		return x.runJWT(cfg)
	case *extauthzv3.ExtAuthz:
		return x.world.runExtAuthz(x, cfg)
	case *rbachttpv3.RBAC:
		refused, err := x.runRBAC(rbacHTTPMetadata, cfg, x.res)
		if refused {
			x.res.Status, x.res.Body = 403, "RBAC: access denied"
		}
		return refused, err
	}
	return false, fmt.Errorf("filter %s (%s) is unknown to the simulator", f.GetName(), messageName(msg))
}
