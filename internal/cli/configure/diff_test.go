package configure

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/terminal"
)

const shopDir = "../../../examples/shop"

func TestDiff(t *testing.T) {
	status, out, errOut := moonsail(t, "diff", shopDir, "-f", "../../../examples/canary")
	require.Equal(t, terminal.ExitFailed, status, errOut)
	require.Contains(t, out, "created VirtualService/shop/reviews (../../../examples/canary/reviews.yaml:2)")
	require.Contains(t, out, "8 of 8 proxies would be sent 8 resources")
	require.Contains(t, out, "http://reviews.shop.svc.cluster.local:8080/ x-demo-user: tester from cart.shop, catalog.shop, frontend.shop and 5 more\n"+
		"  destination       reviews.shop.svc.cluster.local:8080 -> v3\n")
	require.Contains(t, out, "  destination       reviews.shop.svc.cluster.local:8080 -> v1 90%, v2 10%\n")
	require.Contains(t, out, "16 calls tried: 16 decided differently\n")

	status, out, _ = moonsail(t, "diff", shopDir, shopDir)
	require.Equal(t, terminal.ExitOK, status)
	require.Equal(t, "no object differs\n8 proxies: none would be sent anything\n0 calls tried: 0 decided differently\n", out)

	status, out, _ = moonsail(t, "diff", shopDir, "-f", filepath.Join(shopDir, "shop.yaml"), "--delete", "-o", "json")
	require.Equal(t, terminal.ExitOK, status, "no workload is left whose calls could differ")
	var r preview.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Len(t, r.Gone, 8)
	require.Zero(t, r.Of)

	status, out, _ = moonsail(t, "diff", shopDir, "-f", "../../../examples/canary", "-o", "github")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "### moonsail diff: 16 calls tried: 16 decided differently\n")
	require.Contains(t, out, "| destination | `reviews.shop.svc.cluster.local:8080` | `v1 90%, v2 10%` |\n")
}

func TestDiffOfChosenCalls(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls.yaml")
	diff := func(text string) (int, string, string) {
		require.NoError(t, os.WriteFile(calls, []byte(text), 0o600))
		return moonsail(t, "diff", shopDir, "-f", "../../../examples/canary", "--calls", calls)
	}
	status, out, _ := diff(`[{from: frontend.shop, url: "http://catalog.shop:8080/"}, {from: reviews.shop, url: "http://ratings:8080/"}]`)
	require.Equal(t, terminal.ExitOK, status, out)
	require.Contains(t, out, "2 calls tried: 0 decided differently")
	status, out, _ = diff(`[{from: frontend.shop, url: "http://reviews.shop.svc.cluster.local:8080/", headers: {x-demo-user: tester}}]`)
	require.Equal(t, terminal.ExitFailed, status, out)
	require.Contains(t, out, " -> v3")

	status, _, errOut := diff(`[{from: unknown.shop, url: "http://reviews.shop:8080/"}]`)
	require.Equal(t, exitDiffFailed, status)
	require.Contains(t, errOut, `no proxy has the name "unknown.shop"`)
	for _, wrong := range []string{"[{from: frontend.shop}]", "from: frontend.shop", "[{form: frontend.shop}]"} {
		status, _, errOut = diff(wrong)
		require.Equal(t, exitDiffFailed, status)
		require.Contains(t, errOut, calls)
		require.Contains(t, errOut, "next:")
	}
}

// TestDiffOfLoggedCalls checks that the calls of access logs are tried, once each, from the proxies that made them.
func TestDiffOfLoggedCalls(t *testing.T) {
	const text = `2026-11-27T01:00:00Z	info	agent started
[2026-11-27T01:00:01.000Z] "GET /reviews/7 HTTP/1.1" 200 - via_upstream - "-" 0 5 1 1 "-" "curl/8" "id-1" "reviews.shop" "10.0.0.9:8080" outbound|8080||reviews.shop.svc.cluster.local 10.0.0.5:4000 10.1.0.3:8080 10.0.0.5:4001 - default
[2026-11-27T01:00:02.000Z] "GET /reviews/7 HTTP/1.1" 200 - via_upstream - "-" 0 5 1 1 "-" "curl/8" "id-2" "reviews.shop" "10.0.0.9:8080" outbound|8080||reviews.shop.svc.cluster.local 10.0.0.5:4000 10.1.0.3:8080 10.0.0.5:4002 - default
[2026-11-27T01:00:03.000Z] "- - -" 0 - - - "-" 0 5 1 - "-" "-" "-" "-" "10.0.0.9:8080" PassthroughCluster 10.0.0.5:4000 192.0.2.1:5432 10.0.0.5:4002 - -
`
	const json = `{"authority":"reviews.shop:8080","method":"POST","path":"/reviews","protocol":"HTTP/2","upstream_cluster":"inbound|8080||","downstream_local_address":"10.0.0.9:8080","downstream_remote_address":"10.0.0.5:4001","requested_server_name":"outbound_.8080_._.reviews.shop.svc.cluster.local","response_code":200}
`
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	plain, prefixed := write("text.log", text), write("prefixed.log", "[pod/cart/istio-proxy] "+strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n[pod/cart/istio-proxy] "))
	inbound, other := write("json.log", json), write("other.log", "GET / 200\n")
	for name, tc := range map[string]struct {
		logs   []string
		status int
		says   []string
	}{
		"of a proxy":      {[]string{"frontend.shop=" + plain}, 1, []string{"http://reviews.shop:8080/reviews/7 from frontend.shop\n", "-> reviews-v1.shop 90%, reviews-v2.shop 10%", "2 calls tried: 1 decided differently"}},
		"with prefixes":   {[]string{prefixed}, 1, []string{"from cart.shop\n", "2 calls tried: 1 decided differently"}},
		"of two":          {[]string{"frontend.shop=" + plain, "cart.shop=" + plain}, 1, []string{"4 calls tried: 2 decided differently"}},
		"of a server":     {[]string{"frontend.shop=" + plain, inbound}, 1, []string{"note: 1 logged call left out: no proxy has the caller's name or address"}},
		"unknown callers": {[]string{plain}, 2, []string{"no call has a known caller", "NAME.NAMESPACE=FILE"}},
		"another format":  {[]string{other}, 2, []string{other, "no line has Istio's default format"}},
		"no file":         {[]string{"missing.log"}, 2, []string{"missing.log: no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"diff", shopDir, "-f", "../../../examples/canary"}
			for _, l := range tc.logs {
				args = append(args, "--access-logs", l)
			}
			status, out, errOut := moonsail(t, args...)
			require.Equal(t, tc.status, status, out+errOut)
			for _, s := range tc.says {
				require.Contains(t, out+errOut, s)
			}
		})
	}
}

// TestDiffOfTraffic checks that only calls of workloads are tried that the control plane has measured.
func TestDiffOfTraffic(t *testing.T) {
	answers := []string{`{"edges": []}`, `{"at": "2026-11-27T01:00:00Z", "edges": [
		{"source": {"namespace": "shop", "workload": "frontend"}, "target": {"namespace": "shop", "name": "reviews"}, "protocol": "http"},
		{"source": {"namespace": "shop", "workload": "cart"}, "target": {"namespace": "shop", "name": "catalog"}, "protocol": "http"}]}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answers[0])
		answers = answers[max(0, min(1, len(answers)-1)):]
	}))
	defer server.Close()
	status, out, errOut := moonsail(t, "diff", shopDir, "-f", "../../../examples/canary", "--traffic", "--address", server.URL)
	require.Equal(t, terminal.ExitFailed, status, errOut)
	require.Contains(t, out, "x-demo-user: tester from frontend.shop\n")
	require.Contains(t, out, "2 calls tried: 2 decided differently\n")

	answers = []string{`{"at": "2026-11-27T01:00:00Z", "edges": []}`}
	status, _, errOut = moonsail(t, "diff", shopDir, "-f", "../../../examples/canary", "--traffic", "--address", server.URL)
	require.Equal(t, exitDiffFailed, status)
	require.Contains(t, errOut, "no calls were measured")
}

func TestDiffOfWrongInput(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}, weight: -1}]}]}\n"), 0o600))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no change":          {[]string{shopDir}, "no change: give -f CHANGE, or OLD and NEW"},
		"two changes":        {[]string{shopDir, shopDir, "-f", broken}, "NEW and --filename exclude each other"},
		"nothing to delete":  {[]string{shopDir, shopDir, "--delete"}, "--delete needs --filename"},
		"a cluster, too":     {[]string{shopDir, "-f", broken, "--context", "a"}, "exclude each other"},
		"two kinds of calls": {[]string{shopDir, "-f", broken, "--traffic", "--calls", broken}, "--traffic and --calls or --access-logs exclude each other"},
		"a missing file":     {[]string{shopDir, "-f", "missing.yaml"}, "no such file"},
		"an error":           {[]string{shopDir, "-f", broken}, "broken.yaml:4: error: VirtualService/shop/a"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"diff"}, tc.args...)...)
			require.Equal(t, exitDiffFailed, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}
