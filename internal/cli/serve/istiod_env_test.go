package serve

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/test/clitest"
)

// TestIstiodVariables checks that each variable of istiod has the effect that the log describes, or that the log says
// why it has none.
func TestIstiodVariables(t *testing.T) {
	const honoured, ignored = "variable of istiod is honoured", "variable of istiod has no effect"
	usual := model.DefaultAutoAddresses()
	for name, tc := range map[string]struct {
		env      map[string]string
		debounce engine.Debounce
		given    model.AutoAddresses // zero: the default
		senders  int
		blocked  []string
		keys     time.Duration
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
		"throttle":            {env: map[string]string{"PILOT_PUSH_THROTTLE": "1"}, senders: 1, logs: []string{honoured, "at most 1;"}},
		"throttle above CPUs": {env: map[string]string{"PILOT_PUSH_THROTTLE": "100000"}, senders: runtime.GOMAXPROCS(0), logs: []string{honoured}},
		"throttle 0":          {env: map[string]string{"PILOT_PUSH_THROTTLE": "0"}, fails: "PILOT_PUSH_THROTTLE=0: nothing would be pushed"},
		"CDS cache":           {env: map[string]string{"PILOT_ENABLE_CDS_CACHE": "false"}},
		"RDS cache":           {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "false"}},
		"headless by address": {env: map[string]string{"PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES": "false"}, logs: []string{honoured, "this is the default"}},
		"headless by endpoints": {env: map[string]string{"PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES": "true"}, logs: []string{honoured, "over their Pods"},
			mesh: func(m *model.Mesh) { m.BalanceHeadless = true }},
		"queue metrics":         {env: map[string]string{"ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS": "false"}, logs: []string{ignored, "always on"}},
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
		"gateways with clusters of routes": {env: map[string]string{"PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": "true"}, logs: []string{honoured, "their routes, authorizers and collectors"},
			mesh: func(m *model.Mesh) { m.GatewayClustersOfRoutes = true }},
		"no absolute names": {env: map[string]string{"PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN": "false"}, logs: []string{honoured, "unknown host"},
			mesh: func(m *model.Mesh) { m.AbsoluteFQDN = false }},
		"HTTP/1.0": {env: map[string]string{"PILOT_HTTP10": "true"}, logs: []string{honoured, "accept HTTP/1.0"},
			mesh: func(m *model.Mesh) { m.HTTP10 = true }},
		"handshakes": {env: map[string]string{"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT": "5s"}, logs: []string{honoured, "longer than 5s"},
			mesh: func(m *model.Mesh) { m.HandshakeTimeout = 5 * time.Second }},
		"handshakes without limit": {env: map[string]string{"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT": "0s"}, logs: []string{honoured, "without a limit"},
			mesh: func(m *model.Mesh) { m.HandshakeTimeout = 0 }},
		"handshakes with a bad limit": {env: map[string]string{"PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT": "-1s"}, fails: "negative duration"},
		"sampling": {env: map[string]string{"PILOT_TRACE_SAMPLING": "12.5"}, logs: []string{honoured, "12.5 %"},
			mesh: func(m *model.Mesh) { m.Telemetry.BaseSampling = 12.5 }},
		"sampling above 100":         {env: map[string]string{"PILOT_TRACE_SAMPLING": "101"}, fails: "not a percentage"},
		"blocked addresses":          {env: map[string]string{"BLOCKED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8, fd00::/8"}, logs: []string{honoured, "not fetched"}, blocked: []string{"10.0.0.0/8", "fd00::/8"}},
		"invalid blocked addresses":  {env: map[string]string{"BLOCKED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8,example.com"}, fails: `"example.com" is not an address range`},
		"keys":                       {env: map[string]string{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "1h"}, keys: time.Hour, logs: []string{honoured, "every 1h"}},
		"keys every minute":          {env: map[string]string{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "1m"}, keys: time.Minute, logs: []string{honoured, "every 1m"}},
		"mapped blocked addresses":   {env: map[string]string{"BLOCKED_CIDRS_IN_JWKS_URIS": "::ffff:10.1.0.0/104,::ffff:10.0.0.1/128,::ffff:0:0/96,64:ff9b::/96"}, logs: []string{honoured}, blocked: []string{"10.0.0.0/8", "10.0.0.1/32", "0.0.0.0/0", "64:ff9b::/96"}},
		"more than mapped addresses": {env: map[string]string{"BLOCKED_CIDRS_IN_JWKS_URIS": "::ffff:10.0.0.0/95"}, fails: "has more than IPv4 addresses"},
		"keys without pause":         {env: map[string]string{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "59s"}, fails: "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL=59s: shorter than a minute"},
		"no keys":                    {env: map[string]string{"PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "0s"}, fails: "shorter than a minute"},
		"a policy of algorithms":     {env: map[string]string{"COMPLIANCE_POLICY": "fips-140-2"}, fails: "COMPLIANCE_POLICY=fips-140-2: the policy is not enforced"},
		"ambient mode":               {env: map[string]string{"PILOT_ENABLE_AMBIENT": "true"}, logs: []string{ignored, "ambient mode is not supported"}},
		"no ambient mode":            {env: map[string]string{"PILOT_ENABLE_AMBIENT": "false"}},
		"a default in other letters": {env: map[string]string{"ENABLE_LEADER_ELECTION": "True", "POD_NAME": "istiod-1"}},
		"another authority":          {env: map[string]string{"ENABLE_CA_SERVER": "false"}, logs: []string{ignored, "--workload-api decides"}},
		"not a range":                {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0"}, fails: "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX=10.9.1.0: not an address range"},
		"range too small":            {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0/31"}, fails: "the range is too small"},
		"other IP family":            {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "10.9.1.0/24"}, fails: "wrong IP family"},
		"not a duration":             {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "soon"}, fails: "PILOT_DEBOUNCE_AFTER=soon"},
		"negative duration":          {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "-1s"}, fails: "negative duration"},
		"not a boolean":              {env: map[string]string{"PILOT_HTTP10": "maybe"}, fails: "PILOT_HTTP10=maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := controlplane.Options{Mesh: model.DefaultMesh()}
			err := applyIstiodVariables(&o, NewCommand().Flags(), func(k string) (string, bool) { v, ok := tc.env[k]; return v, ok }, slog.New(slog.NewTextHandler(&log, nil)))
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
			require.Equal(t, tc.keys, o.KeyRefresh)
			require.Equal(t, fmt.Sprint(tc.blocked), fmt.Sprint(o.FetchBlocked))
			if tc.debounce.After > 0 || o.Debounce.After > 0 {
				require.Equal(t, tc.debounce, o.Debounce)
			}
			for _, s := range tc.logs {
				require.Contains(t, log.String(), s)
			}
			if len(tc.logs) == 0 && tc.debounce.Max == 0 {
				require.Empty(t, log.String())
			}
		})
	}
}

// TestIstiodFlags checks the values of the flags that istiod's variables set, and that the log names a variable only if
// its value applies.
func TestIstiodFlags(t *testing.T) {
	type values struct {
		ttl, maximum time.Duration
		names        []string
	}
	usual := values{ttl: ca.DefaultTTL, maximum: ca.DefaultMaxTTL}
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want func(*values)
		logs []string
	}{
		"none set": {},
		"maximum": {env: map[string]string{"MAX_WORKLOAD_CERT_TTL": "48h"},
			want: func(v *values) { v.maximum = 48 * time.Hour }, logs: []string{"MAX_WORKLOAD_CERT_TTL"}},
		"lifetime": {env: map[string]string{"DEFAULT_WORKLOAD_CERT_TTL": "3h"},
			want: func(v *values) { v.ttl = 3 * time.Hour }, logs: []string{"DEFAULT_WORKLOAD_CERT_TTL"}},
		"names": {env: map[string]string{"ISTIOD_CUSTOM_HOST": "a.example.com,b.example.com"},
			want: func(v *values) { v.names = []string{"a.example.com", "b.example.com"} }, logs: []string{"ISTIOD_CUSTOM_HOST"}},
		"overridden by the command line": {env: map[string]string{"MAX_WORKLOAD_CERT_TTL": "48h", "DEFAULT_WORKLOAD_CERT_TTL": "3h"},
			args: []string{"--max-workload-cert-ttl", "72h"},
			want: func(v *values) { v.maximum, v.ttl = 72*time.Hour, 3*time.Hour }, logs: []string{"DEFAULT_WORKLOAD_CERT_TTL"}},
		"overridden by Moonsail's variable": {env: map[string]string{"ISTIOD_CUSTOM_HOST": "a.example.com", "MOONSAIL_XDS_CERT_NAMES": "c.example.com"},
			want: func(v *values) { v.names = []string{"c.example.com"} }},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			f := &flags{mesh: model.DefaultMesh()}
			cmd := f.command()
			var log bytes.Buffer
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				f.options.Mesh = f.mesh
				return applyIstiodVariables(&f.options, cmd.Flags(), os.LookupEnv, slog.New(slog.NewTextHandler(&log, nil)))
			}
			root := clitest.Root(cmd)
			root.SetArgs(append([]string{"serve"}, tc.args...))
			require.NoError(t, root.ExecuteContext(t.Context()))
			want := usual
			if tc.want != nil {
				tc.want(&want)
			}
			o := f.options.Identity
			require.Equal(t, want, values{ttl: o.TTL, maximum: o.MaxTTL, names: o.Names})
			for _, variable := range istiodFlags {
				if slices.Contains(tc.logs, variable) {
					require.Contains(t, log.String(), "variable="+variable+" value="+tc.env[variable])
				} else {
					require.NotContains(t, log.String(), variable)
				}
			}
		})
	}
}

// TestCustomHostWithoutCertificate checks that istiod's variable of names in the certificate does not keep the control plane
// from starting if there is no certificate for them, and that errors name the variable.
func TestCustomHostWithoutCertificate(t *testing.T) {
	const istiods, own, conflict = "ISTIOD_CUSTOM_HOST", "MOONSAIL_XDS_CERT_NAMES", "the control plane issues no certificates"
	plaintext := []string{"--xds-plaintext-addr", "127.0.0.1:0"}
	tls := []string{"--xds-addr", "127.0.0.1:0"}
	for name, tc := range map[string]struct {
		variable, host string
		args           []string
		names          []string // empty: dropped
		fails          string
	}{
		"files":                             {variable: istiods, host: "a.example.com", args: append(tls, "--xds-cert", "c", "--xds-key", "k", "--xds-root-cert", "r")},
		"Workload API":                      {variable: istiods, host: "a.example.com", args: append(tls, "--workload-api", "unix:///run/agent.sock")},
		"without TLS":                       {variable: istiods, host: "a.example.com", args: plaintext},
		"certificate":                       {variable: istiods, host: "a.example.com", args: tls, names: []string{"a.example.com"}},
		"invalid name":                      {variable: istiods, host: "a b", args: tls, fails: `environment variable ISTIOD_CUSTOM_HOST: "a b": neither a DNS name`},
		"invalid name, Moonsail's variable": {variable: own, host: "a b", args: tls, fails: `environment variable MOONSAIL_XDS_CERT_NAMES: "a b": neither a DNS name`},
		"invalid flag":                      {variable: istiods, host: "a.example.com", args: append(tls, "--xds-cert-names", "a b"), fails: `--xds-cert-names: "a b": neither a DNS name`},
		"Moonsail's variable without TLS":   {variable: own, host: "a.example.com", args: plaintext, fails: "no port with TLS"},
		"flag and Workload API":             {variable: istiods, host: "a.example.com", args: append(tls, "--xds-cert-names", "a.example.com", "--workload-api", "unix:///run/agent.sock"), fails: conflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tc.variable, tc.host)
			f := &flags{mesh: model.DefaultMesh()}
			cmd := f.command()
			var log bytes.Buffer
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				f.options.Mesh = f.mesh
				f.certNamesOf(cmd.Flags())
				if err := f.check(); err != nil {
					return err
				}
				return applyIstiodVariables(&f.options, cmd.Flags(), os.LookupEnv, slog.New(slog.NewTextHandler(&log, nil)))
			}
			root := clitest.Root(cmd)
			root.SetArgs(append([]string{"serve", "--config", t.TempDir(), "--http-addr", ""}, tc.args...))
			err := root.ExecuteContext(t.Context())
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.names, f.options.Identity.Names)
			if tc.names == nil {
				require.Contains(t, log.String(), `level=WARN msg="variable of istiod has no effect" variable=ISTIOD_CUSTOM_HOST value=a.example.com`)
				require.NotContains(t, log.String(), "honoured")
			} else {
				require.Contains(t, log.String(), `msg="variable of istiod is honoured" variable=ISTIOD_CUSTOM_HOST`)
			}
		})
	}
}
