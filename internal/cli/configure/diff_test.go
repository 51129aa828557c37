package configure

import (
	"encoding/json"
	"os"
	"path/filepath"
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

func TestDiffOfWrongInput(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}, weight: -1}]}]}\n"), 0o600))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no change":         {[]string{shopDir}, "no change: give -f CHANGE, or OLD and NEW"},
		"two changes":       {[]string{shopDir, shopDir, "-f", broken}, "NEW and --filename exclude each other"},
		"nothing to delete": {[]string{shopDir, shopDir, "--delete"}, "--delete needs --filename"},
		"a cluster, too":    {[]string{shopDir, "-f", broken, "--context", "a"}, "exclude each other"},
		"a missing file":    {[]string{shopDir, "-f", "missing.yaml"}, "no such file"},
		"an error":          {[]string{shopDir, "-f", broken}, "broken.yaml:4: error: VirtualService/shop/a"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"diff"}, tc.args...)...)
			require.Equal(t, exitDiffFailed, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}
