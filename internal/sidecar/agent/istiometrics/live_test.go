package istiometrics

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// callOf is the label of a connection to a service.
func callOf(service string) string {
	return `__call="source|tcp|||-|` + service + `|||db-v1;shop;db;v1;Kubernetes"`
}

// TestLive checks that the sum of counters and open connections never decreases, and continues when connections end.
func TestLive(t *testing.T) {
	memory := &Live{}
	sent := func(text string) map[string]string {
		t.Helper()
		var b strings.Builder
		require.NoError(t, Rewrite(&b, []byte(text), own, memory))
		require.NotContains(t, b.String(), "_live")
		out := map[string]string{}
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, "istio_tcp_sent_bytes_total{") {
				continue
			}
			host := labelsOf(t, strings.TrimSuffix(line, "\n"))["destination_service_name"]
			require.NotContains(t, out, host, "each counter is there once")
			out[host] = strings.TrimSpace(line[strings.LastIndexByte(line, '}')+1:])
		}
		if len(out) > 0 {
			require.Equal(t, 1, strings.Count(b.String(), "# TYPE istio_tcp_sent_bytes_total counter\n"), b.String())
		}
		return out
	}
	const counter, gauge = "# TYPE envoy_istio_tcp_sent_bytes_total counter\n", "# TYPE envoy_istio_tcp_sent_bytes_live gauge\n"
	counted := func(service, value string) string {
		return "envoy_istio_tcp_sent_bytes_total{" + callOf(service) + "} " + value + "\n"
	}
	going := func(service, connection, value string) string {
		return "envoy_istio_tcp_sent_bytes_live{" + callOf(service) + `,__cx="` + connection + `"} ` + value + "\n"
	}
	const a, b = "a.shop.svc.cluster.local", "b.shop.svc.cluster.local"

	require.Equal(t, map[string]string{"a": "7"}, sent(gauge+going(a, "1", "4")+going(a, "2", "3")), "without a counter")
	require.Equal(t, map[string]string{"a": "17", "b": "5"},
		sent(counter+counted(a, "10")+"# TYPE envoy_other counter\nenvoy_other{} 1\n"+gauge+going(a, "1", "4")+going(a, "2", "3")+going(b, "3", "5")))
	require.Equal(t, map[string]string{"a": "17"}, sent(counter+counted(a, "10")+gauge+going(a, "1", "0")+going(a, "2", "3")), "the first is not in the counter yet")
	require.Equal(t, map[string]string{"a": "18"}, sent(counter+counted(a, "15")+gauge+going(a, "1", "0")+going(a, "2", "3")), "now it is")
	require.Equal(t, map[string]string{"a": "19"}, sent(counter+counted(a, "19")))

	require.Empty(t, sent(""), "metrics are off: Envoy has dropped its counters")
	require.Equal(t, map[string]string{"a": "2"}, sent(gauge+going(a, "4", "2")), "metrics are on again")
	require.Equal(t, map[string]string{"a": "3"}, sent(counter+counted(a, "3")))
	require.Equal(t, map[string]string{"a": "1"}, sent(counter+counted(a, "1")), "off and on between two scrapes")

	memory = &Live{}
	require.Equal(t, map[string]string{"a": "1"}, sent(counter+counted(a, "1")), "another Envoy starts at 0")
}
