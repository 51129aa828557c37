package istiometrics

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/callstats"
)

var own = &callstats.Workload{Name: "web-v1", Namespace: "shop", Service: "web", Revision: "v1", Cluster: "Kubernetes", App: "web", Version: "v1"}

func rewrite(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, Rewrite(&b, []byte(text), own, &Live{}))
	return b.String()
}

// labelsOf returns the labels of one line.
func labelsOf(t *testing.T, line string) map[string]string {
	t.Helper()
	_, text, _, ok := splitLine([]byte(line))
	require.True(t, ok, line)
	list, ok := parseLabels(string(text))
	require.True(t, ok, line)
	out := map[string]string{}
	for _, l := range list {
		require.NotContains(t, out, l.name, "each label once")
		out[l.name] = l.value
	}
	return out
}

func TestClient(t *testing.T) {
	got := rewrite(t, "# TYPE envoy_istio_requests_total counter\n"+
		`envoy_istio_requests_total{__call="source|http|200||-|reviews.other.svc.cluster.local|spiffe://td/ns/shop/sa/web|spiffe://td/ns/other/sa/r|reviews-v2;other;reviews;v2;Kubernetes;rev;2"} 3`+"\n")
	require.Equal(t, "# TYPE istio_requests_total counter\n"+
		`istio_requests_total{reporter="source",source_workload="web-v1",source_workload_namespace="shop",`+
		`source_principal="spiffe://td/ns/shop/sa/web",source_app="web",source_version="v1",source_cluster="Kubernetes",`+
		`source_canonical_service="web",source_canonical_revision="v1",`+
		`destination_workload="reviews-v2",destination_workload_namespace="other",destination_principal="spiffe://td/ns/other/sa/r",`+
		`destination_app="rev",destination_version="2",destination_cluster="Kubernetes",`+
		`destination_canonical_service="reviews",destination_canonical_revision="v2",`+
		`destination_service="reviews.other.svc.cluster.local",destination_service_name="reviews",destination_service_namespace="other",`+
		`request_protocol="http",response_code="200",grpc_response_status="",response_flags="-",connection_security_policy="unknown"} 3`+"\n", got)
}

// TestLabelWithoutValue checks that a label of a Telemetry is "unknown" for calls that do not have it, as in Istio.
func TestLabelWithoutValue(t *testing.T) {
	got := rewrite(t, `envoy_istio_requests_total{__call="source|http|200||-|a|b|c|d",user="",kind="x"} 1`+"\n")
	labels := labelsOf(t, strings.TrimSuffix(got, "\n"))
	require.Equal(t, "unknown", labels["user"])
	require.Equal(t, "x", labels["kind"])
}

func TestServer(t *testing.T) {
	line := func(peer string) map[string]string {
		return labelsOf(t, rewrite(t, `envoy_istio_requests_total{__call="destination|grpc|200|14|DC|`+
			`web.shop.svc.cluster.local|spiffe://td/ns/shop/sa/web|`+peer+`"} 1`+"\n"))
	}
	got := line("spiffe://td/ns/client/sa/c|caller;client;canonical;;Kubernetes")
	require.Equal(t, "caller", got["source_workload"])
	require.Equal(t, "latest", got["source_canonical_revision"])
	require.Equal(t, "mutual_tls", got["connection_security_policy"])
	require.Equal(t, "14", got["grpc_response_status"])
	require.Equal(t, "web-v1", got["destination_workload"])
	require.Equal(t, "spiffe://td/ns/shop/sa/web", got["destination_principal"])

	got = line("spiffe://td/ns/client/sa/c|admin;shop;admin;v1;Kubernetes")
	require.Equal(t, "unknown", got["source_workload"], "the certificate has another namespace")
	require.Equal(t, "client", got["source_workload_namespace"], "the namespace of the certificate")
	require.Equal(t, "spiffe://td/ns/client/sa/c", got["source_principal"])

	got = line("|caller;client;canonical;;Kubernetes")
	require.Equal(t, "unknown", got["source_workload"], "a caller without a certificate is unknown")
	require.Equal(t, "none", got["connection_security_policy"])

	got = line(`spiffe://td/ns/client/sa/c|a|b\"};x`)
	require.Equal(t, "unknown", got["source_workload"])
}

func TestOverrides(t *testing.T) {
	got := labelsOf(t, rewrite(t, `envoy_istio_requests_total{__call="source|http|200||-|a.example.com;a.example.com;shop|||",`+
		`__removed="source_app,response_flags",request_host="x\"y",response_code="mine"} 1`))
	require.NotContains(t, got, "source_app")
	require.NotContains(t, got, "response_flags")
	require.Equal(t, "mine", got["response_code"])
	require.Equal(t, `x\"y`, got["request_host"])
	require.Equal(t, "a.example.com", got["destination_service_name"])
	require.Equal(t, "shop", got["destination_service_namespace"])
	require.Equal(t, "unknown", got["destination_workload"])
	require.NotContains(t, got, "__call")
}

func TestTCP(t *testing.T) {
	got := labelsOf(t, rewrite(t, `envoy_istio_tcp_sent_bytes_total{__call="source|tcp|||UF|;PassthroughCluster;|-|-|-"} 7`))
	require.NotContains(t, got, "response_code")
	require.Equal(t, "tcp", got["request_protocol"])
	require.Equal(t, "UF", got["response_flags"])
	require.Equal(t, "unknown", got["destination_service"])
	require.Equal(t, "PassthroughCluster", got["destination_service_name"])
	require.Equal(t, "unknown", got["source_principal"])
}

// TestHistogram checks that all lines of a histogram have the same labels, and "le" last.
func TestHistogram(t *testing.T) {
	const call = `__call="source|http|200||-|a.shop.svc.cluster.local|||b;shop;b;v1;Kubernetes"`
	got := rewrite(t, "# TYPE envoy_istio_request_bytes histogram\n"+
		"envoy_istio_request_bytes_bucket{"+call+`,le="0.5"} 1`+"\n"+
		"envoy_istio_request_bytes_bucket{"+call+`,le="+Inf"} 2`+"\n"+
		"envoy_istio_request_bytes_sum{"+call+"} 3.5\n"+
		"envoy_istio_request_bytes_count{"+call+"} 2\n")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	require.Len(t, lines, 5)
	require.True(t, strings.HasSuffix(lines[2], `,le="+Inf"} 2`), lines[2])
	first := labelsOf(t, lines[1])
	delete(first, "le")
	require.Equal(t, first, labelsOf(t, lines[3]))
	require.True(t, strings.HasPrefix(lines[4], "istio_request_bytes_count{"))
}

// TestOtherLinesStay checks that other metrics, and malformed ones, are copied unchanged.
func TestOtherLinesStay(t *testing.T) {
	for _, text := range []string{
		"", "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n", "no end",
		"envoy_istio_broken",
	} {
		require.Equal(t, text, rewrite(t, text))
	}
	require.Equal(t, "istio_build{a=\"b\"} 1\n", rewrite(t, "envoy_istio_build{a=\"b\"} 1\n"))
	require.Equal(t, "istio_x{__call=\"few|parts\"} 1\n", rewrite(t, "envoy_istio_x{__call=\"few|parts\"} 1\n"))
}

// TestUntrustedCallersAreOneSample checks that samples of callers without a certificate are summed.
func TestUntrustedCallersAreOneSample(t *testing.T) {
	line := func(peer string, n string) string {
		return `envoy_istio_requests_total{__call="destination|http|200||-|a.shop.svc.cluster.local||spiffe://td/ns/x/sa/y|` + peer + `"} ` + n + "\n"
	}
	got := rewrite(t, "# TYPE envoy_istio_requests_total counter\n"+line("a;b;c;d;e", "2")+line("f;x;c;d;e", "1")+line("g;b;c;d;e", "3")+"# TYPE other gauge\n")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	require.Len(t, lines, 4)
	require.True(t, strings.HasSuffix(lines[1], "} 5"), lines[1])
	require.Equal(t, "unknown", labelsOf(t, lines[1])["source_workload"])
	require.Equal(t, "f", labelsOf(t, lines[2])["source_workload"])
	require.Equal(t, "# TYPE other gauge", lines[3])
}

// TestTextRoundTrip decodes what another sidecar encodes.
func TestTextRoundTrip(t *testing.T) {
	for _, w := range []callstats.Workload{*own, {Name: "a", Namespace: "b", Service: "c", App: "d"}, {}} {
		require.Equal(t, w, callstats.ParseWorkload(w.Text()))
	}
	require.Equal(t, callstats.Workload{}, callstats.ParseWorkload("a;b"))
}

func FuzzRewrite(f *testing.F) {
	f.Add(`envoy_istio_x{__call="destination|http|1|2|3|4|5|6|7",a="b\"",le="1"} 1`)
	f.Fuzz(func(t *testing.T, text string) { _ = rewrite(t, text) })
}

func BenchmarkRewrite(b *testing.B) {
	var text strings.Builder
	for range 1000 {
		text.WriteString(`envoy_istio_request_bytes_bucket{__call="source|http|200||-|a.shop.svc.cluster.local|||b;shop;b;v1;Kubernetes",le="0.5"} 1` + "\n")
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		var out strings.Builder
		_ = Rewrite(&out, []byte(text.String()), own, &Live{})
	}
}
