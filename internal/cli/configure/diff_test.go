package configure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

const shopDir = "../../../examples/shop"

func TestDiff(t *testing.T) {
	status, out, errOut := moonsail(t, "diff", shopDir, "-f", "../../../examples/canary")
	require.Equal(t, terminal.ExitFailed, status, errOut)
	require.Contains(t, out, "created VirtualService/shop/reviews (../../../examples/canary/reviews.yaml:2)")
	require.Contains(t, out, "8 of 8 proxies would be sent 8 resources")
	require.Contains(t, out, "http://reviews.shop.svc.cluster.local:8080/ x-demo-user: tester from cart.shop, catalog.shop, frontend.shop and 5 more: 8 calls\n"+
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
	require.True(t, strings.HasPrefix(out, "### moonsail diff: changes 16 calls\n\n16 calls tried: 16 decided differently. 8 of 8 proxies "), out)
	require.Contains(t, out, "- created `VirtualService/shop/reviews` (`examples/canary/reviews.yaml:2`)\n")
	require.Contains(t, out, ", ratings.shop, reviews-v1.shop, reviews-v2.shop, reviews-v3.shop, shopper.shop`: 8 calls | ", "up to ten callers are listed")
	require.Contains(t, out, "| `destination` | `reviews.shop.svc.cluster.local:8080` | `v1 90%, v2 10%` |\n")
	_, out, _ = moonsail(t, "diff", shopDir, shopDir, "-o", "github")
	require.True(t, strings.HasPrefix(out, "### moonsail diff: no call is decided differently\n"), out)
}

// TestDiffNamesTheReason checks that new problems of analysis come with the calls.
func TestDiffNamesTheReason(t *testing.T) {
	change := filepath.Join(t.TempDir(), "change.yaml")
	for name, tc := range map[string]struct {
		change string
		args   []string
		want   []string
	}{
		"a misspelt host": {
			"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hosts: [reviews], http: [{route: [{destination: {host: reveiws}}]}]}\n", nil,
			[]string{"forwarded -> answers 503: no service has the host reveiws.shop.svc.cluster.local\n", "new: " + change + ":4: error: VirtualService/shop/reviews: spec.http[0].route[0].destination.host: service reveiws.shop.svc.cluster.local: not found"},
		},
		"a deleted service": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\n", []string{"--delete"},
			[]string{"deleted Service/shop/reviews", "new: ../../../examples/canary/reviews.yaml:17: ", "service reviews.shop.svc.cluster.local: not found"},
		},
		"an old problem": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {a: b}}\n", nil,
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(change, []byte(tc.change), 0o600))
			old := t.TempDir()
			require.NoError(t, os.CopyFS(old, os.DirFS(shopDir)))
			if name != "a misspelt host" {
				require.NoError(t, os.CopyFS(filepath.Join(old, "canary"), os.DirFS("../../../examples/canary")))
			}
			for _, format := range []string{"table", "github"} {
				_, out, errOut := moonsail(t, append([]string{"diff", old, "-f", change, "-o", format}, tc.args...)...)
				require.Empty(t, errOut)
				for _, want := range tc.want {
					if want = strings.ReplaceAll(want, "../../../examples/canary", filepath.Join(old, "canary")); format == "table" {
						require.Contains(t, out, want)
					}
				}
				require.Equal(t, tc.want != nil, strings.Contains(out, "new: "), out)
			}
		})
	}
}

// TestDiffCountsWhatItLists checks that each counted call is listed once, with its method.
func TestDiffCountsWhatItLists(t *testing.T) {
	change := filepath.Join(t.TempDir(), "change.yaml")
	require.NoError(t, os.WriteFile(change, []byte(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ratings, namespace: shop}
spec:
  selector: {matchLabels: {app: ratings}}
  rules:
  - from: [{source: {principals: [cluster.local/ns/shop/sa/reviews]}}]
    to: [{operation: {methods: [GET, POST]}}]
`), 0o600))
	status, out, errOut := moonsail(t, "diff", shopDir, "-f", change, "-o", "json")
	require.Equal(t, terminal.ExitFailed, status, errOut)
	var r preview.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	listed, methods := 0, map[string]bool{}
	for _, d := range r.Differences {
		require.Equal(t, len(d.Calls)*len(d.From), d.Count, "%+v", d)
		listed += d.Count
		for _, c := range d.Calls {
			methods[c.Method] = true
		}
	}
	require.Equal(t, r.Differ, listed)
	require.Equal(t, r.Differ, r.Broken, "the policy only forbids")
	require.Equal(t, 16, r.Tried, "a GET and a POST of each workload")
	require.Equal(t, map[string]bool{"GET": true, "POST": true}, methods)
}

// TestDiffBehindAFailure checks that a route that leads nowhere does not hide what else changes, and that the comment's verdict counts
// the calls that fail.
func TestDiffBehindAFailure(t *testing.T) {
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hosts: [reviews], http: [{timeout: %s, route: [{destination: {host: %s}}]}]}\n"
	dir := t.TempDir()
	base, change := filepath.Join(dir, "base.yaml"), filepath.Join(dir, "change.yaml")
	require.NoError(t, os.WriteFile(base, fmt.Appendf([]byte(blueGreen), route, "4s", "reviews-v2"), 0o600))
	for name, tc := range map[string]struct{ to, reason string }{
		"no service":  {"nowhere", "no service has the host nowhere.shop.svc.cluster.local"},
		"no port":     {"reviews, port: {number: 81}", "service reviews.shop.svc.cluster.local has no port 81"},
		"no subset":   {"reviews, subset: v9", "no DestinationRule has the subset v9 of reviews.shop.svc.cluster.local"},
		"no endpoint": {"empty", "empty.shop.svc.cluster.local:80 has no endpoint that takes calls"},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(route, "10s", tc.to)
			if tc.to == "empty" {
				text += "---\napiVersion: v1\nkind: Service\nmetadata: {name: empty, namespace: shop}\nspec: {clusterIP: 10.0.0.11, ports: [{port: 80, name: http}], selector: {app: none}}\n"
			}
			require.NoError(t, os.WriteFile(change, []byte(text), 0o600))
			_, out, errOut := moonsail(t, "diff", base, "-f", change)
			require.Contains(t, out, "  answer            forwarded -> answers 503: "+tc.reason+"\n", errOut)
			require.Contains(t, out, "  timeout           4s -> 10s\n")
			_, out, _ = moonsail(t, "diff", base, "-f", change, "-o", "github")
			require.True(t, strings.HasPrefix(out, "### moonsail diff: breaks "), out)
		})
	}
}

// TestDiffWithAnUnreadableFile checks that diff names what it cannot read of the configuration before the change. If that is a control
// plane's directory, the previous objects are in force, and a change of them cannot be compared.
func TestDiffWithAnUnreadableFile(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: shop}\nspec:\n  hosts: [%s]\n"
	dir, changes := t.TempDir(), t.TempDir()
	write := func(name, text string) string {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	write(filepath.Join(dir, "shop.yaml"), blueGreen)
	broken := write(filepath.Join(dir, "broken.yaml"), fmt.Sprintf(route, "reviews", "reviews")+"\thttp: []\n")
	same := write(filepath.Join(changes, "same.yaml"), fmt.Sprintf(route, "reviews", "reviews")+"  http: [{timeout: 1s, route: [{destination: {host: reviews}}]}]\n")
	other := write(filepath.Join(changes, "other.yaml"), fmt.Sprintf(route, "other", "reviews-v2")+"  http: [{timeout: 1s, route: [{destination: {host: reviews-v2}}]}]\n")
	s := httptest.NewServer(debug.Handler(debug.Stages{ConfigDir: dir}, slog.New(slog.DiscardHandler)))
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	for name, tc := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a directory":                         {[]string{dir, "-f", same}, 1, "note: before the change: " + broken + ":6: error: is not valid YAML"},
		"a directory, another object":         {[]string{dir, "-f", other}, 1, "note: before the change: " + broken + ":6: error: is not valid YAML"},
		"after the change":                    {[]string{shopDir, dir}, 2, broken + ":6: error: is not valid YAML"},
		"a control plane's":                   {[]string{"-f", same, "--address", address}, 2, "error: the state before the change is not known: the control plane keeps the previous object in force"},
		"a control plane's, an object beside": {[]string{"-f", other, "--address", address}, 1, "the control plane keeps the previous objects in force, and the comparison is without them\n"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"diff"}, tc.args...)...)
			require.Equal(t, tc.status, status, out+errOut)
			require.Contains(t, out+errOut, tc.want)
		})
	}
}

// TestDirectoryOfAControlPlane checks that commands without files read the directory of a local control plane.
func TestDirectoryOfAControlPlane(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	change := filepath.Join(t.TempDir(), "change.yaml")
	require.NoError(t, os.WriteFile(change, []byte(badYAML), 0o600))
	dir, err := filepath.Abs(shopDir)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		dir                     string
		analyze, changed, diffs string // what the commands print
	}{
		"its directory":   {dir, " of " + dir + ", the directory of the control plane at ", ", with the change, ", "compared with " + dir + ", the directory of the control plane at "},
		"on another host": {"/nowhere", "the directory of the control plane is not on this machine", "not on this machine", "not on this machine"},
		"an API server's": {"", "no configuration: give a directory or file", "no configuration: give a directory or file", "no configuration: give OLD"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(debug.Handler(debug.Stages{ConfigDir: tc.dir}, slog.New(slog.DiscardHandler)))
			defer s.Close()
			t.Setenv("MOONSAIL_ADDRESS", strings.TrimPrefix(s.URL, "http://"))
			_, out, errOut := moonsail(t, "analyze", "--level", "error")
			require.Contains(t, out+errOut, tc.analyze)
			_, out, errOut = moonsail(t, "analyze", "-f", change)
			require.Contains(t, out+errOut, tc.changed)
			for _, format := range []string{"table", "github"} {
				_, out, errOut = moonsail(t, "diff", "-f", "../../../examples/canary", "-o", format)
				want := tc.diffs
				if name == "its directory" && format == "github" { // a public comment has no addresses, and no directories of this machine
					want = "compared with `examples/shop, the directory of a control plane`\n"
					require.NotContains(t, out, dir)
				}
				require.Contains(t, out+errOut, want)
			}
		})
	}
}

// TestSourceAtAnAddress checks that --address reads the directory of a control plane on this machine, and nothing in its place.
func TestSourceAtAnAddress(t *testing.T) {
	t.Setenv("KUBECONFIG", cluster(t)) // the command does not read it
	change := filepath.Join(t.TempDir(), "change.yaml")
	require.NoError(t, os.WriteFile(change, []byte(goodYAML), 0o600))
	many := t.TempDir()
	for i := range file.MaxFiles + 1 {
		require.NoError(t, os.WriteFile(filepath.Join(many, fmt.Sprintf("%d.yaml", i)), nil, 0o600))
	}
	large := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(large, "a.yaml"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(large, "a.yaml"), file.MaxBytes)) // zeros, which are no YAML
	require.NoError(t, os.WriteFile(filepath.Join(large, "b.yaml"), []byte(goodYAML), 0o600))
	pages := func(dir string) string {
		s := httptest.NewServer(debug.Handler(debug.Stages{ConfigDir: dir}, slog.New(slog.DiscardHandler)))
		t.Cleanup(s.Close)
		return s.URL
	}
	dir, err := filepath.Abs(shopDir)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		address string
		args    []string
		want    string
	}{
		"its directory":                {pages(dir), nil, dir + ", the directory of the control plane at "},
		"an API server's":              {pages(""), nil, "is not a directory: choose its cluster with --context instead"},
		"a relative name":              {pages("../../../examples/shop"), nil, "the directory of the control plane is on another machine"},
		"too many files":               {pages(many), nil, "it has more than 5000 files and directories\n  where: " + many},
		"too large":                    {pages(large), nil, "it has more than 64 MiB of YAML and JSON\n  where: " + large},
		"--server-side of a directory": {pages(dir), []string{"diff", "--server-side"}, "--address does not choose the cluster of --server-side"},
		"beside files":                 {pages(dir), []string{"analyze", shopDir}, "--address excludes files, --kubeconfig and --context: give either"},
		"beside a cluster":             {pages(dir), []string{"analyze", "--context", "c"}, "--address excludes files, --kubeconfig and --context: give either"},
	} {
		t.Run(name, func(t *testing.T) {
			commands := [][]string{{"analyze"}, {"diff"}}
			if tc.args != nil {
				commands = [][]string{tc.args}
			}
			for _, args := range commands {
				_, out, errOut := moonsail(t, append(args, "-f", change, "--address", tc.address)...)
				require.Contains(t, out+errOut, tc.want)
				require.NotContains(t, out, "cluster at")
			}
		})
	}
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
	require.Contains(t, errOut, `no workload has the name "unknown.shop"`)
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
	answers := []string{`{"edges": []}`, `{"at": "2026-11-27T01:00:00Z", "complete": true, "edges": [
		{"source": {"namespace": "shop", "workload": "frontend"}, "target": {"namespace": "shop", "name": "reviews"}, "protocol": "http"},
		{"source": {"namespace": "shop", "workload": "cart"}, "target": {"namespace": "shop", "name": "catalog"}, "protocol": "http"}]}`}
	answers = slices.Insert(answers, 1, strings.Replace(answers[1], `"complete": true`, `"complete": false`, 1))
	address := trafficServer(t, answers...)
	status, out, errOut := moonsail(t, "diff", shopDir, "-f", "../../../examples/canary", "--traffic", "--address", address)
	require.Equal(t, terminal.ExitFailed, status, errOut)
	require.Contains(t, out, "x-demo-user: tester from frontend.shop\n")
	require.Contains(t, out, "2 calls tried: 2 decided differently\n")
	require.NotContains(t, out, "note:")

	status, _, errOut = moonsail(t, "diff", shopDir, "-f", "../../../examples/canary", "--traffic", "--address", trafficServer(t, `{"at": "2026-11-27T01:00:00Z", "complete": true, "edges": []}`))
	require.Equal(t, exitDiffFailed, status)
	require.Contains(t, errOut, "no calls were measured")
}

// trafficServer serves the calls that a control plane has measured. Each answer is given once, the last one from then on.
func trafficServer(t *testing.T, answers ...string) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answers[0])
		answers = answers[min(1, len(answers)-1):]
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestDiffOfRoutedTraffic checks calls whose metrics do not have the host that is called: they have that of the route's cluster.
func TestDiffOfRoutedTraffic(t *testing.T) {
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec: {hosts: [reviews], http: [{%s}]}\n"
	var (
		toV2     = fmt.Sprintf(route, "route: [{destination: {host: reviews-v2}}]")
		redirect = fmt.Sprintf(route, "redirect: {authority: example.com}")
		aborted  = fmt.Sprintf(route, "fault: {abort: {percentage: {value: 100}, httpStatus: 503}}, route: [{destination: {host: reviews-v2}}]")
		registry = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'outboundTrafficPolicy: {mode: REGISTRY_ONLY}'}\n"
	)
	const measured = `"complete": true, "proxies": {"connected": 3, "measured": 3}`
	for name, tc := range map[string]struct {
		before, after string
		target        string // of frontend's calls
		coverage      string // empty: all
		status        int
		want          []string
	}{
		"a service that a route chooses":     {toV2, aborted, `{"namespace": "shop", "name": "reviews-v2"}`, "", 1, []string{" from frontend.shop\n", "1 call tried: 1 decided differently\n"}},
		"a service behind a fault":           {aborted, strings.Replace(aborted, "503", "500", 1), `{"namespace": "shop", "name": "reviews-v2"}`, "", 1, []string{"1 call tried: 1 decided differently\n"}},
		"a service that a route will choose": {"", toV2, `{"namespace": "shop", "name": "reviews-v2"}`, "", 1, []string{"1 call tried: 1 decided differently\n"}},
		"an answer of the proxy itself":      {redirect, toV2, `{}`, "", 1, []string{"1 call tried: 1 decided differently\n"}},
		"an unknown service":                 {"", registry, `{"name": "PassthroughCluster"}`, "", 1, []string{"http://example.com/", " from frontend.shop\n", "2 calls tried: 2 decided differently\n"}},
		"no answer of the proxy itself":      {redirect, toV2, `{"namespace": "shop", "name": "frontend"}`, "", 0, []string{"0 calls tried: 0 decided differently\nnote: no call was tried: no workload was measured to call a service that the change concerns\n"}},
		"no change of a proxy":               {toV2, toV2, `{"namespace": "shop", "name": "reviews-v2"}`, "", 0, []string{"none would be sent anything\n0 calls tried: 0 decided differently\n"}},
		"workloads that were not measured": {
			toV2, aborted, `{"namespace": "shop", "name": "frontend"}`,
			`"complete": true, "proxies": {"connected": 3, "measured": 1, "failed": 2}, "failures": ["reviews-1.shop: timeout"], "leftOut": 7`, 1,
			[]string{
				" from reviews-v2.shop, reviews.shop: 2 calls\n", "2 calls tried: 2 decided differently\n",
				"note: 2 of 3 proxies were not measured: workloads without measured calls are taken to call all services\n",
				"note: 7 measured calls left out: the control plane lists only the busiest\n", "note: reviews-1.shop: timeout\n",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base, change := filepath.Join(dir, "base.yaml"), filepath.Join(dir, "change.yaml")
			require.NoError(t, os.WriteFile(base, []byte(blueGreen+tc.before), 0o600))
			require.NoError(t, os.WriteFile(change, []byte(tc.after), 0o600))
			address := trafficServer(t, fmt.Sprintf(`{"at": "2026-11-27T01:00:00Z", %s, "edges": [{"source": {"namespace": "shop", "workload": "frontend"}, "target": %s, "protocol": "http"}]}`,
				cmp.Or(tc.coverage, measured), tc.target))
			status, out, errOut := moonsail(t, "diff", base, "-f", change, "--traffic", "--address", address)
			require.Equal(t, tc.status, status, out+errOut)
			for _, text := range tc.want {
				require.Contains(t, out, text)
			}
			if tc.coverage == "" && tc.status != 0 {
				require.NotContains(t, out, "note:")
			}
		})
	}
}

// TestTrafficOfSomeProxies checks that a graph is used that is still incomplete when the time ends.
func TestTrafficOfSomeProxies(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			cancel()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"at": "2026-11-27T01:00:00Z", "edges": [], "proxies": {"connected": 1000, "measured": 400}}`)
	}))
	defer server.Close()
	f := diffFlags{plane: client.ControlPlane{Address: server.URL}}
	graph, err := f.measured(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"600 of 1000 proxies were not measured: workloads without measured calls are taken to call all services"}, lackingIn(graph))
}

// blueGreen is a Service for each version of reviews.
const blueGreen = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.0.0.9, ports: [{port: 80, name: http}], selector: {app: reviews}}
---
apiVersion: v1
kind: Service
metadata: {name: reviews-v2, namespace: shop}
spec: {clusterIP: 10.0.0.10, ports: [{port: 80, name: http}], selector: {app: reviews-v2}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: reviews, namespace: shop}
spec:
  selector: {matchLabels: {app: reviews}}
  template: {metadata: {labels: {app: reviews}}, spec: {containers: [{name: a, image: a, ports: [{containerPort: 80}]}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: reviews-v2, namespace: shop}
spec:
  selector: {matchLabels: {app: reviews-v2}}
  template: {metadata: {labels: {app: reviews-v2}}, spec: {containers: [{name: a, image: a, ports: [{containerPort: 80}]}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: frontend, namespace: shop}
spec:
  selector: {matchLabels: {app: frontend}}
  template: {metadata: {labels: {app: frontend}}, spec: {containers: [{name: a, image: a}]}}
---
`

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

// TestDiffCommentOfForeignText checks that nothing of an object is Markdown in the comment on a pull request.
func TestDiffCommentOfForeignText(t *testing.T) {
	dir := t.TempDir()
	change := filepath.Join(dir, "change.yaml")
	require.NoError(t, os.WriteFile(change, []byte(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: shop}
spec:
  action: DENY
  rules:
  - when: [{key: "request.headers[x]", values: ["a\\|b`+"`"+`\r\r# LGTM\r\r![x](https://example.com/x.png)\r"]}]
    to: [{operation: {paths: ["/a", "![x](https://example.com/y.png)"]}}]
`), 0o600))
	_, out, errOut := moonsail(t, "diff", "../../../examples/shop", "-f", change, "-o", "github")
	require.Contains(t, out, "LGTM", errOut)
	require.NotContains(t, out, "\r")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "| ") {
			require.NotContains(t, line, `\\|`, "the backslash before a bar frees it")
		}
		parts := strings.Split(line, "`")
		require.Equal(t, 1, len(parts)%2, "code ends in its line: %s", line)
		for i := 0; i < len(parts); i += 2 {
			require.NotContains(t, parts[i], "![x]", line)
			require.NotContains(t, parts[i], "LGTM", line)
		}
	}
}
