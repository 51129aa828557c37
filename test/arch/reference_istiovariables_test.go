package arch

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/cli/istioenv"
	"github.com/moonsail/moonsail/internal/cli/serve"
	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// istiodValues are values that show what istiod's variables do.
var istiodValues = map[string]string{
	"PILOT_DEBOUNCE_AFTER": "100ms", "PILOT_DEBOUNCE_MAX": "10s", "PILOT_ENABLE_EDS_DEBOUNCE": "false", "PILOT_PUSH_THROTTLE": "1",
	"PILOT_ENABLE_IP_AUTOALLOCATE": "false", "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "240.241.0.0/16", "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "2001:3::/48",
	"PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS": "true", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false",
	"PILOT_SKIP_VALIDATE_TRUST_DOMAIN": "true", "ENABLE_CA_SERVER": "false",
	"PILOT_SCOPE_GATEWAY_TO_NAMESPACE": "true", "PILOT_ENABLE_STRICT_GATEWAY_MERGING": "false", "PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN": "false",
	"PILOT_HTTP10": "true", "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": "true", "PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES": "true", "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT": "5s", "PILOT_TRACE_SAMPLING": "5", "BLOCKED_CIDRS_IN_JWKS_URIS": "10.0.0.0/8", "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL": "1h",
	"MAX_WORKLOAD_CERT_TTL": "48h", "DEFAULT_WORKLOAD_CERT_TTL": "12h", "ISTIOD_CUSTOM_HOST": "mesh.example.com",
}

// istioVariables reads the names of a section of testdata/istio-variables.txt.
func istioVariables(t *testing.T, section string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/istio-variables.txt")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "["+section+"]\n")
	require.True(t, found, section)
	before, _, _ := strings.Cut(after, "[")
	return strings.Fields(before)
}

// variableRow is a row of the reference.
type variableRow struct{ name, effect, notes string }

// unreadRows are rows for variables without effect.
func unreadRows(list []istioenv.Variable) (rows []variableRow) {
	for _, v := range list {
		row := variableRow{v.Name, string(ignored), v.Why}
		switch values := strings.ReplaceAll(v.Holds, "|", "`, `"); values {
		case istioenv.Any:
			row.effect = string(silent)
		case "":
		default:
			row.notes += "; no warning for `" + values + "`"
		}
		rows = append(rows, row)
	}
	return rows
}

// writeVariables writes the rows of one program. Each name that the program of Istio has needs one row, and no row is
// about another name.
func writeVariables(t *testing.T, b *strings.Builder, names []string, rows []variableRow) {
	t.Helper()
	slices.SortStableFunc(rows, func(x, y variableRow) int { return cmp.Compare(nameOf(x), nameOf(y)) })
	have := map[string]bool{}
	b.WriteString("| Variable | Effect | Notes |\n|---|---|---|\n")
	for _, r := range rows {
		require.False(t, have[nameOf(r)], "%s is in two tables", nameOf(r))
		have[nameOf(r)] = true
		require.True(t, slices.Contains(names, nameOf(r)), "%s: Istio has no such variable; see testdata/istio-variables.txt", nameOf(r))
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", r.name, r.effect, cell(r.notes))
	}
	for _, n := range names {
		require.True(t, have[n], "%s is neither read nor in cli/istioenv with a reason", n)
	}
}

// nameOf is a row's variable without its example.
func nameOf(r variableRow) string { name, _, _ := strings.Cut(r.name, "="); return name }

func istiodVariables(t *testing.T, b *strings.Builder) {
	t.Helper()
	variables, err := serve.IstiodVariables(istiodValues)
	require.NoError(t, err)
	rows := unreadRows(istioenv.Istiod)
	for _, v := range variables {
		effect, notes := honoured, v.Effect
		if v.Effect == "" {
			effect, notes = ignored, v.Why
		}
		if v.Refused {
			effect = refused
		}
		rows = append(rows, variableRow{strings.TrimSuffix(v.Name+"="+v.Value, "="), string(effect), notes})
	}
	writeVariables(t, b, istioVariables(t, "istiod"), rows)
}

// agentVariables has rows for the variables of the agent, which flags or the agent read, and for the metadata that the
// control plane reads.
func agentVariables(t *testing.T, b *strings.Builder) {
	t.Helper()
	flags := map[string]string{} // by variable
	agent, _, err := cli.NewRootCommand().Find([]string{"agent"})
	require.NoError(t, err)
	agent.Flags().VisitAll(func(f *pflag.Flag) {
		for _, name := range terminal.VariablesOf(f) {
			flags[name] = f.Name
		}
	})
	for _, s := range []struct {
		section, prefix string
		unread          []istioenv.Variable
		read            []string
	}{
		{"agent", "", istioenv.Agent, sidecar.Variables}, {"metadata", istioenv.MetadataPrefix, istioenv.Metadata, server.IstioMetadata},
	} {
		names, rows := istioVariables(t, s.section), unreadRows(s.unread)
		for _, n := range names {
			flag, ofFlag := flags[s.prefix+n]
			row := variableRow{name: n, effect: string(honoured)}
			if ofFlag {
				row.notes = "sets --" + flag
			}
			if ofFlag || slices.Contains(s.read, n) {
				rows = append(rows, row)
			}
		}
		if s.section == "metadata" {
			b.WriteString("\n## Metadata of the node\n\n`ISTIO_META_X` in `proxyMetadata` of ProxyConfig, or in the agent's environment, sets the field X.\n\n")
		}
		writeVariables(t, b, names, rows)
	}
}
