package serve

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
)

// TestIstiodVariables checks that each variable of istiod has the effect that the log describes, or that the log says
// why it has none.
func TestIstiodVariables(t *testing.T) {
	const honoured, ignored = "istiod's variable is honoured", "istiod's variable has no effect"
	usual := model.DefaultAutoAddresses()
	for name, tc := range map[string]struct {
		env      map[string]string
		debounce engine.Debounce
		given    model.AutoAddresses // zero: the default
		senders  int
		blocked  []string
		mesh     func(*model.Mesh) // what else differs from the default; nil: nothing
		logs     []string
		fails    string
	}{
		"none set": {},
		"debounce": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "100ms"},
			debounce: engine.Debounce{After: 100 * time.Millisecond, Max: 10 * time.Second}, logs: []string{honoured, "none has arrived for 100ms"}},
		"debounce with maximum": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "100ms", "PILOT_DEBOUNCE_MAX": "1s"},
			debounce: engine.Debounce{After: 100 * time.Millisecond, Max: time.Second}, logs: []string{"no event waits longer than 1s"}},
		"debounce off": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "0s", "PILOT_DEBOUNCE_MAX": "1s"},
			debounce: engine.Debounce{Max: 10 * time.Second}},
		"maximum without debounce": {env: map[string]string{"PILOT_DEBOUNCE_MAX": "1s"}, logs: []string{ignored, "PILOT_DEBOUNCE_AFTER is not set"}},
		"endpoints do not wait": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "1s", "PILOT_ENABLE_EDS_DEBOUNCE": "false"},
			debounce: engine.Debounce{After: time.Second, Max: 10 * time.Second, EndpointsPass: true}, logs: []string{"endpoints do not wait"}},
		"endpoints wait": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "1s", "PILOT_ENABLE_EDS_DEBOUNCE": "true"},
			debounce: engine.Debounce{After: time.Second, Max: 10 * time.Second}, logs: []string{"endpoints wait like other events"}},
		"throttle":              {env: map[string]string{"PILOT_PUSH_THROTTLE": "1"}, senders: 1, logs: []string{honoured, "at most 1;"}},
		"throttle above CPUs":   {env: map[string]string{"PILOT_PUSH_THROTTLE": "100000"}, senders: runtime.GOMAXPROCS(0), logs: []string{honoured}},
		"throttle 0":            {env: map[string]string{"PILOT_PUSH_THROTTLE": "0"}, fails: "PILOT_PUSH_THROTTLE=0: nothing would be pushed"},
		"CDS cache":             {env: map[string]string{"PILOT_ENABLE_CDS_CACHE": "false"}, logs: []string{ignored, "PILOT_ENABLE_CDS_CACHE", "a cluster is encoded once"}},
		"RDS cache":             {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "true"}, logs: []string{ignored, "PILOT_ENABLE_RDS_CACHE", "a route is encoded once"}},
		"queue metrics":         {env: map[string]string{"ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS": "true"}, logs: []string{ignored, "always on"}},
		"addresses for entries": {env: map[string]string{"PILOT_ENABLE_IP_AUTOALLOCATE": "true"}, logs: []string{honoured, "this is the default"}},
		"no addresses for entries": {env: map[string]string{"PILOT_ENABLE_IP_AUTOALLOCATE": "false"}, logs: []string{honoured, "get none", "DNS_AUTO_ALLOCATE"},
			given: model.AutoAddresses{Off: true, V4: usual.V4, V6: usual.V6}},
		"other ranges": {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0/16", "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "fd00:9::/64"},
			given: model.AutoAddresses{V4: netip.MustParsePrefix("10.9.0.0/16"), V6: netip.MustParsePrefix("fd00:9::/64")}, logs: []string{honoured, "one from 10.9.1.0/16", "one from fd00:9::/64"}},
		"gateways are not deployed": {env: map[string]string{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false"}, logs: []string{honoured, "are not deployed"}},
		"gateways by flag":          {env: map[string]string{"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "true"}, logs: []string{ignored, "--deploy-gateways decides"}},
		"one authorizer":            {env: map[string]string{"PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS": "false"}, logs: []string{honoured, "this is the default"}},
		"many authorizers":          {env: map[string]string{"PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS": "true"}, logs: []string{honoured, "each is asked"}},
		"any trust domain":          {env: map[string]string{"PILOT_SKIP_VALIDATE_TRUST_DOMAIN": "true"}, logs: []string{honoured, "every trust domain"}},
		"own trust domains":         {env: map[string]string{"PILOT_SKIP_VALIDATE_TRUST_DOMAIN": "false"}, logs: []string{honoured, "this is the default"}},
		"gateways of the namespace": {env: map[string]string{"PILOT_SCOPE_GATEWAY_TO_NAMESPACE": "true"}, logs: []string{honoured, "routers of their namespace"},
			mesh: func(m *model.Mesh) { m.ScopeGatewayToNamespace = true }},
		"mixed gateways": {env: map[string]string{"PILOT_ENABLE_STRICT_GATEWAY_MERGING": "false"}, logs: []string{honoured, "of all namespaces"},
			mesh: func(m *model.Mesh) { m.StrictGatewayMerging = false }},
		"no absolute names": {env: map[string]string{"PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN": "false"}, logs: []string{honoured, "unknown host"},
			mesh: func(m *model.Mesh) { m.AbsoluteFQDN = false }},
		"HTTP/1.0": {env: map[string]string{"PILOT_HTTP10": "true"}, logs: []string{honoured, "accept HTTP/1.0"},
			mesh: func(m *model.Mesh) { m.HTTP10 = true }},
		"sampling": {env: map[string]string{"PILOT_TRACE_SAMPLING": "12.5"}, logs: []string{honoured, "12.5 %"},
			mesh: func(m *model.Mesh) { m.Telemetry.Sampling = 12.5 }},
		"sampling above 100":         {env: map[string]string{"PILOT_TRACE_SAMPLING": "101"}, fails: "not a percentage"},
		"blocked addresses":          {env: map[string]string{"BLOCKED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8, fd00::/8"}, logs: []string{honoured, "not fetched"}, blocked: []string{"10.0.0.0/8", "fd00::/8"}},
		"invalid blocked addresses":  {env: map[string]string{"BLOCKED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8,example.com"}, fails: `"example.com" is not an address range`},
		"no keys":                    {env: map[string]string{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "0s"}, fails: "not positive"},
		"lifetime":                   {env: map[string]string{"MAX_WORKLOAD_CERT_TTL": "48h"}, logs: []string{honoured, "sets --max-workload-cert-ttl"}},
		"a policy of algorithms":     {env: map[string]string{"COMPLIANCE_POLICY": "fips-140-2"}, fails: "COMPLIANCE_POLICY=fips-140-2: the policy is not enforced"},
		"ambient mode":               {env: map[string]string{"PILOT_ENABLE_AMBIENT": "true"}, logs: []string{"variable of istiod has no effect", "ambient mode is not supported"}},
		"no ambient mode":            {env: map[string]string{"PILOT_ENABLE_AMBIENT": "false"}},
		"a default in other letters": {env: map[string]string{"ENABLE_LEADER_ELECTION": "True", "POD_NAME": "istiod-1"}},
		"another authority":          {env: map[string]string{"ENABLE_CA_SERVER": "false"}, logs: []string{ignored, "--workload-api decides"}},
		"not a range":                {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0"}, fails: "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX=10.9.1.0: not an address range"},
		"range too small":            {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0/31"}, fails: "the range is too small"},
		"other IP family":            {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "10.9.1.0/24"}, fails: "wrong IP family"},
		"not a duration":             {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "soon"}, fails: "PILOT_DEBOUNCE_AFTER=soon"},
		"negative duration":          {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "-1s"}, fails: "negative duration"},
		"not a boolean":              {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "maybe"}, fails: "PILOT_ENABLE_RDS_CACHE=maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := controlplane.Options{Mesh: model.DefaultMesh()}
			err := applyIstiodVariables(&o, func(k string) (string, bool) { v, ok := tc.env[k]; return v, ok }, slog.New(slog.NewTextHandler(&log, nil)))
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.senders, o.Senders)
			require.Equal(t, cmp.Or(tc.given, usual), o.Mesh.AutoAddresses)
			if tc.mesh != nil {
				want := model.DefaultMesh()
				tc.mesh(want)
				require.Equal(t, want, o.Mesh)
			}
			require.Equal(t, fmt.Sprint(tc.blocked), fmt.Sprint(o.FetchBlocked))
			if tc.debounce.After > 0 || o.Debounce.After > 0 {
				require.Equal(t, tc.debounce, o.Debounce)
			}
			for _, s := range tc.logs {
				require.Contains(t, log.String(), s)
			}
			if len(tc.env) == 0 {
				require.Empty(t, log.String())
			}
		})
	}
}
