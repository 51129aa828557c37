package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

func TestProxiesTable(t *testing.T) {
	var b strings.Builder
	var f proxiesFlags
	require.NoError(t, f.print(&b, &debug.ProxyList{Now: noon, Proxies: oneProxy{}.Proxies()}))
	require.Equal(t, `NAME       NAMESPACE  STATUS    CDS     EDS        LDS      RDS       VHDS  PROTOCOL  ROUTES  SETTLED  CONNECTED  ENVOY
reviews-1  shop       NACKED 1  SYNCED  SENT 1.2s  WAITING  NACKED 1  -     delta     vhds    42       1h0m0s     1.40.0
`, b.String())
	b.Reset()
	require.NoError(t, f.print(&b, &debug.ProxyList{}))
	require.Equal(t, "no proxies are connected\n", b.String())
}

func TestProxyStatus(t *testing.T) {
	for want, p := range map[string]server.ProxyState{
		"SYNCED":       {},
		"BEHIND":       {Pending: 1},
		"BEHIND 2m10s": {Pending: 1, BehindSince: noon.Add(-130 * time.Second)},
		"NACKED 2":     {Pending: 1, Types: []server.TypeState{{Held: make([]server.Held, 2)}}},

		"DISCONNECTED 1m5s": {Pending: 1, DisconnectedSince: noon.Add(-65 * time.Second)},
	} {
		require.Equal(t, want, proxyStatus(terminal.Style{}, &p, noon))
	}
}

func TestProxyDetail(t *testing.T) {
	var b strings.Builder
	require.NoError(t, printProxy(&b, debug.ProxyDetail{Now: noon, Proxy: aProxy()}))
	require.Equal(t, `reviews-1.shop
  node id    sidecar~127.0.0.1~reviews-1.shop~shop.svc.cluster.local
  peer       127.0.0.1:4711
  connected  1h0m0s ago, delta, routes by vhds
  version    Envoy 1.40.0
  status     NACKED 1: 2 revisions not ACKed, the oldest is 41
  settled    revision 42
  table 1    outbound shop
  table 2    inbound reviews

TYPE  STATE      SUBSCRIBED  SENT  ACKED  NOTE
CDS   SYNCED     *           42    42
EDS   SENT 1.2s  12          42    41
LDS   WAITING    * and 2     41    41     waits for CDS
RDS   NACKED 1   1           40    40

refused RDS, held back until it differs: Duplicate entry of domain
  80 (version 0123456789abcdef)
`, b.String())
}

// TestHeldTogether checks that refused resources with the same message are listed together.
func TestHeldTogether(t *testing.T) {
	held := []server.Held{{Name: "a", Version: "1", Message: "no", Since: noon.Add(-time.Minute)}, {Name: "b", Version: "2", Message: "never"}, {Name: "c", Version: "3", Message: "no"}}
	for i := range 19 {
		held = append(held, server.Held{Name: fmt.Sprint("d", i), Message: "no"})
	}
	held[1].By = distribution.Blame{Sure: true, Objects: []distribution.Blamed{{Object: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "region"}, Origin: "f.yaml:3"}}}
	var b strings.Builder
	require.NoError(t, printHeld(&b, terminal.Style{}, &server.ProxyState{Types: []server.TypeState{{Type: "CDS", Held: held}}}, noon))
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, []string{"", "refused CDS, held back until it differs: no", "  a (version 1, 1m0s ago)", "  c (version 3)"}, lines[:4])
	require.Equal(t, []string{"  and 1 more: see -o json", "", "refused CDS, held back until it differs: never", "  by EnvoyFilter shop/region, f.yaml:3", "  b (version 2)", ""}, lines[22:])
}

func TestProxiesCommand(t *testing.T) {
	address := controlPlane(t)
	status, out, _ := moonsail(t, "proxies", "--address", address)
	require.Zero(t, status)
	require.Contains(t, out, "reviews-1")

	status, out, _ = moonsail(t, "proxies", "reviews-1.shop", "-o", "yaml", "--address", address)
	require.Zero(t, status)
	var detail debug.ProxyDetail
	require.NoError(t, yaml.Unmarshal([]byte(out), &detail))
	require.Equal(t, aProxy().ID, detail.Proxy.ID)

	status, _, errOut := moonsail(t, "proxies", "unknown-1", "--address", address)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, `error: proxy "unknown-1" is not connected`)
	require.Contains(t, errOut, "next:")
	for _, near := range []string{"review-1.shop", "pod/reviews-2.shop"} {
		status, _, errOut = moonsail(t, "proxies", near, "--address", address)
		require.Equal(t, 1, status)
		require.Contains(t, errOut, `is not connected; did you mean "reviews-1.shop"?`)
	}
	status, out, errOut = moonsail(t, "proxies", "pod/reviews-1.shop", "--address", address)
	require.Zero(t, status, errOut)
	require.Contains(t, out, "reviews-1.shop")

	_, out, _ = moonsail(t, "__complete", "proxies", "--address", address, "")
	require.Contains(t, out, "reviews-1.shop")
	_, out, _ = moonsail(t, "__complete", "proxies", "--status", "behind,")
	require.Equal(t, []string{"behind,synced", "behind,nacked", "behind,disconnected"}, strings.Split(out, "\n")[:3])
}

func TestProxiesNotWithStatus(t *testing.T) {
	address, p := controlPlane(t), aProxy()
	status := strings.ToLower(string(p.Judge()))
	_, out, _ := moonsail(t, "proxies", "--address", address, "-o", "name", "--status", status)
	require.Contains(t, out, "reviews-1.shop")
	_, out, _ = moonsail(t, "proxies", "--address", address, "-o", "name", "--status", "!"+strings.ToUpper(status))
	require.NotContains(t, out, "reviews-1.shop")
	for statuses, want := range map[string]string{
		"!synced,behind":                        "--status: some statuses have '!' and some not",
		"!sync":                                 `--status "sync": unknown status`,
		"!" + strings.Join(statusNames(), ",!"): "--status: leaves out all statuses: give fewer",
	} {
		t.Run(statuses, func(t *testing.T) {
			code, _, errOut := moonsail(t, "proxies", "--address", address, "--status", statuses)
			require.Equal(t, 2, code)
			require.Contains(t, errOut, want)
		})
	}
}

func TestProxiesWorkers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/proxies":
			_, _ = io.WriteString(w, `{"proxies":[{"name":"web","namespace":"shop"},{"name":"api","namespace":"shop"},{"name":"old","namespace":"shop"}]}`)
		case "/debug/proxies/web.shop/envoy/workers":
			_, _ = io.WriteString(w, `{"concurrency":2,"because":"--concurrency","imbalance":"worker 1 has 90 of 100 connections, 1.8 times the mean",
				"workers":[{"worker":0,"connections":10,"cpu":0.05},{"worker":1,"connections":90,"cpu":0.9}]}`)
		case "/debug/proxies/api.shop/envoy/workers":
			_, _ = io.WriteString(w, `{"concurrency":1,"because":"a CPU limit of 1 (cpu.max)","workers":[{"worker":0,"connections":3,"cpu":-1}]}`)
		default:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"error":"the proxy's agent cannot be asked"}`)
		}
	}))
	defer s.Close()
	status, out, errOut := moonsail(t, "proxies", "--workers", "--address", s.URL)
	require.Zero(t, status, errOut)
	require.Regexp(t, `(?m)^PROXY +WORKERS +CONNECTIONS +CPU +NOTE$`, out)
	require.Regexp(t, `(?m)^api.shop +1 +3 +\? +from a CPU limit of 1 \(cpu.max\)$`, out)
	require.Regexp(t, `(?m)^old.shop +- +- +- +.*cannot be asked`, out)
	require.Regexp(t, `(?m)^web.shop +2 +10 90 +5% 90% +UNEVEN: worker 1 has 90 of 100 connections`, out)
}

// TestProxyFormats checks kubectl's formats, the namespace, and the columns of istioctl.
func TestProxyFormats(t *testing.T) {
	address := controlPlane(t)
	for _, tc := range []struct {
		args   string
		status int
		out    string // a regular expression
	}{
		{"proxies -o name", 0, `^reviews-1\.shop\n$`},
		{"proxies -o jsonpath={.proxies[*].namespace}", 0, `^shop\n$`},
		{"proxies -o jsonpath=proxies[0].name", 0, `^reviews-1\n$`},
		{"proxies -o jsonpath={.proxies[*", 2, `--output: jsonpath "\{.proxies\[\*": .*: use a template as for kubectl`},
		{"proxies -o jsonpath=", 2, `unknown format "jsonpath=": use table, json, yaml, wide, name or jsonpath=TEMPLATE`},
		{"proxies -o wide", 0, `ENVOY +ISTIO +REVISION +PEER +NODE ID\n.* 127.0.0.1:4711 +sidecar~127.0.0.1~reviews-1.shop`},
		{"proxies -n bank", 0, `^no proxies are connected from namespace bank\n$`},
		{"proxies -n shop", 0, `reviews-1`},
		{"proxies -A", 0, `reviews-1`},
		{"proxies --status nacked,BEHIND -o name", 0, `^reviews-1\.shop\n$`},
		{"proxies --status behind -o name", 0, `^$`},
		{"proxies --status behind,synced", 0, `^no proxies are behind or synced\n$`},
		{"proxies --certificates --status synced -n shop", 0, `^no proxies are synced from namespace shop\n$`},
		{"proxies --workers --status behind", 0, `^no proxies are behind\n$`},
		{"proxies --status synced -n shop", 0, `^no proxies are synced from namespace shop\n$`},
		{"proxies --status behnd", 2, `--status "behnd": unknown status; did you mean "behind"\?: use synced, behind, nacked`},
		{"proxies reviews-1.shop --status nacked", 2, `--status: filters a list: leave out PROXY`},
		{"proxies -o jsonpath={.proxies[*].status}", 0, `^NACKED\n$`},
		{"proxies reviews-1.shop -o jsonpath={.proxy.status}", 0, `^NACKED\n$`},
		{"proxy-status --status nacked", 0, `^NAME +CLUSTER.*\nreviews-1.shop`},
		{"proxies -A -n shop", 2, `--namespace and --all-namespaces: give one of them`},
		{"proxies reviews-1 -n shop -o name", 0, `^reviews-1\.shop\n$`},
		{"proxies reviews-1.shop -w", 2, `--watch: prints a table of proxies`},
		{"proxy-status", 0, `^NAME +CLUSTER +CDS +LDS +EDS +RDS +ECDS +ISTIOD +VERSION\nreviews-1.shop +Kubernetes +SYNCED +STALE +STALE +ERROR +IGNORED +http://127.0.0.1:[0-9]+ +1.40.0\n$`},
		{"ps", 0, `^NAME +CLUSTER`},
		{"changes -n shop -o name", 0, `^virtualservice/shop/reviews\n$`},
		{"changes -n bank", 0, `^no changes of objects in namespace bank\n$`},
		{"changes -n 5", 2, `--namespace "5": not a namespace: use --number for the number of changes`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			status, out, errOut := moonsail(t, append(strings.Fields(tc.args), "--address", address)...)
			require.Equal(t, tc.status, status, errOut)
			require.Regexp(t, tc.out, out+errOut)
		})
	}
}

// TestProxyWatch checks that a proxy is printed again when its state changes, and when it is gone.
func TestProxyWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	row := func(name, state string) proxyRow {
		return proxyRow{key: name, state: state, cells: []string{name, "shop", state}}
	}
	answers := [][]proxyRow{
		{row("a", "SYNCED"), row("b", "SYNCED")}, {row("a", "SYNCED"), row("b", "BEHIND")}, {row("a", "SYNCED")},
	}
	var b strings.Builder
	require.NoError(t, follow(ctx, &b, time.Millisecond, func(context.Context) (*proxyTable, error) {
		if len(answers) == 0 {
			cancel()
			return nil, ctx.Err()
		}
		t := &proxyTable{headings: []string{"NAME", "NAMESPACE", "STATUS"}, rows: answers[0]}
		answers = answers[1:]
		return t, nil
	}))
	require.Equal(t, []string{
		"NAME NAMESPACE STATUS", "a shop SYNCED", "b shop SYNCED", "b shop BEHIND", "b shop DISCONNECTED",
	}, squeezed(b.String()))
}

// followed returns what --watch prints of a series of tables.
func followed(t *testing.T, tables ...*proxyTable) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var b strings.Builder
	require.NoError(t, follow(ctx, &b, time.Millisecond, func(context.Context) (*proxyTable, error) {
		if len(tables) == 0 {
			cancel()
			return nil, ctx.Err()
		}
		next := tables[0]
		tables = tables[1:]
		return next, nil
	}))
	return b.String()
}

// TestProxyWatchColumns checks that columns keep their places, and that headings follow if they cannot.
func TestProxyWatchColumns(t *testing.T) {
	f := proxiesFlags{watch: true}
	table := func(change func(*server.ProxyState), others int) *proxyTable {
		p := aProxy()
		change(&p)
		return f.table(terminal.Style{}, &debug.ProxyList{Now: noon, Proxies: []server.ProxyState{p}, Others: make([]explain.PeerQuery, others)})
	}
	out := followed(t,
		table(func(p *server.ProxyState) { p.Types, p.Pending = nil, 0 }, 0),
		table(func(p *server.ProxyState) { p.Connected, p.Settled = noon.Add(-100*time.Hour), 1_000_000 }, 0),
		table(func(p *server.ProxyState) { p.Namespace = "a-much-longer-namespace" }, 0),
		table(func(p *server.ProxyState) { p.Types, p.Pending = nil, 0 }, 0),
		table(func(p *server.ProxyState) { p.Types, p.Settled = nil, 43 }, 1),
	)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 8)
	headings := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "NAME ") {
			headings = i
			continue
		}
		for _, column := range []string{"PROTOCOL", "ROUTES", "ENVOY"} {
			want := map[string]string{"PROTOCOL": "delta", "ROUTES": "vhds", "ENVOY": "1.40.0"}[column]
			at := strings.Index(lines[headings], column)
			require.True(t, strings.HasPrefix(line[at:], want), "%s\n%s", lines[headings], line)
		}
	}
	require.Contains(t, lines[6], "CONTROL PLANE")
}

// TestProxyWatchOfStatus checks that --watch with --status prints a proxy when it gets such a status, and once more afterwards.
func TestProxyWatchOfStatus(t *testing.T) {
	var f proxiesFlags
	f.statuses = []string{"behind"}
	table := func(pending ...int) *proxyTable {
		list := &debug.ProxyList{Now: noon}
		for i, n := range pending {
			list.Proxies = append(list.Proxies, server.ProxyState{ID: fmt.Sprint(i), Name: fmt.Sprint("p", i), Namespace: "shop", Pending: n})
		}
		return f.table(terminal.Style{}, list)
	}
	var got []string
	for _, line := range squeezed(followed(t, table(0, 1), table(1, 1), table(1, 0), table(1, 0, 0), table(0), table())) {
		got = append(got, strings.Join(strings.Fields(line)[:3], " "))
	}
	require.Equal(t, []string{"NAME NAMESPACE STATUS", "p1 shop BEHIND", "p0 shop BEHIND", "p1 shop SYNCED", "p0 shop SYNCED"}, got)
}

// squeezed returns lines with one space between words.
func squeezed(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestProxiesCertificates(t *testing.T) {
	soon, later := time.Now().Add(90*time.Minute), time.Now().Add(24*time.Hour)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/proxies":
			_, _ = io.WriteString(w, `{"proxies":[{"name":"api","namespace":"shop"},{"name":"old","namespace":"shop"},{"name":"web","namespace":"shop"},{"name":"pay","namespace":"bank"}]}`)
		case "/debug/proxies/api.shop/envoy/identity":
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "spiffe://cluster.local/ns/shop/sa/api", "issuer": "CN=root", "notAfter": later})
		case "/debug/proxies/web.shop/envoy/identity":
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "spiffe://cluster.local/ns/shop/sa/web", "issuer": "CN=root", "notAfter": soon, "problem": "the CA does not answer"})
		default:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"error":"the proxy's agent cannot be asked"}`)
		}
	}))
	defer s.Close()
	status, out, errOut := moonsail(t, "proxies", "--certificates", "-n", "shop", "--address", s.URL)
	require.Zero(t, status, errOut)
	lines := squeezed(out)
	require.Len(t, lines, 4, "not those of other namespaces")
	require.Equal(t, "PROXY ID EXPIRES IN VALID UNTIL ISSUER NOTE", lines[0])
	require.Contains(t, lines[1], "old.shop - - - - control plane at")
	require.Regexp(t, `^web.shop spiffe://cluster.local/ns/shop/sa/web 1h30m0s .* CN=root the CA does not answer$`, lines[2])
	require.Regexp(t, `^api.shop spiffe://cluster.local/ns/shop/sa/api 24h0m0s `, lines[3])

	_, out, _ = moonsail(t, "proxies", "--certificates", "-n", "shop", "-o", "name", "--address", s.URL)
	require.Equal(t, "old.shop\nweb.shop\napi.shop\n", out)
}

// TestDisconnectedProxies checks that commands list a proxy that has disconnected, and that istioctl's names of them do not.
func TestDisconnectedProxies(t *testing.T) {
	gone := aProxy()
	gone.ID, gone.Name, gone.DisconnectedSince, gone.Types = "sidecar~gone", "web-1", noon.Add(-65*time.Second), []server.TypeState{{Type: "CDS", Wildcard: true, Lacks: 2}}
	page := func(value any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value) }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/proxies", page(debug.ProxyList{Now: noon, Proxies: oneProxy{}.Proxies(), Disconnected: []server.ProxyState{gone}}))
	mux.HandleFunc("/debug/proxies/web-1.shop", page(debug.ProxyDetail{Now: noon, Proxy: gone}))
	mux.HandleFunc("/debug/why/web-1.shop", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		page(debug.Failure{Error: `proxy "web-1.shop" is not connected`})(w, r)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	run := func(args ...string) (out, errOut string) {
		_, out, errOut = moonsail(t, append(args, "--address", s.URL)...)
		return out, errOut
	}
	out, _ := run("proxies")
	require.Regexp(t, `(?m)^web-1 +shop +DISCONNECTED 1m5s +LACKS 2 `, out)
	out, _ = run("proxies", "--status", "disconnected", "-o", "name")
	require.Equal(t, "web-1.shop\n", out)
	out, _ = run("proxies", "-o", "jsonpath={.proxies[?(@.status==\"DISCONNECTED\")].name}")
	require.Equal(t, "web-1", strings.TrimSpace(out))
	out, _ = run("proxies", "web-1.shop")
	require.Contains(t, out, "DISCONNECTED 1m5s, since ")
	out, errOut := run("proxy-status")
	require.NotContains(t, out, "web-1")
	require.Contains(t, errOut, "note: 1 proxy is disconnected: see 'moonsail proxies --status disconnected'\n")
	_, errOut = run("proxy-status", "--status", "disconnected")
	require.Contains(t, errOut, "use 'moonsail proxies --status disconnected")
	_, out, _ = moonsail(t, "__complete", "proxies", "--address", s.URL, "")
	require.Contains(t, out, "web-1.shop")
	_, errOut = run("why", "web-1.shop", "http://db")
	require.Contains(t, errOut, `proxy "web-1.shop" is disconnected, since `)
	require.NotContains(t, errOut, "did you mean")
	var b strings.Builder
	require.NoError(t, printVersions(&b, &versions{Disconnected: 1, Proxies: []proxyVersion{{Envoy: "1.40.0", Proxies: 7}}}, false))
	require.Contains(t, b.String(), "Envoy 1.40.0 (7 proxies)"+"; 1 disconnected (see 'moonsail proxies --status disconnected')")
}

// TestMessagesAreOneLine checks that an Envoy's message begins no line: a CI system obeys some lines.
func TestMessagesAreOneLine(t *testing.T) {
	var b strings.Builder
	held := []server.Held{{Name: "a\nb", Message: "no\r\n::set-output name=x::y"}}
	require.NoError(t, printHeld(&b, terminal.Style{}, &server.ProxyState{Types: []server.TypeState{{Type: "CDS", Held: held}}}, noon))
	require.Contains(t, b.String(), `: no\r\n::set-output name=x::y`)
	require.Contains(t, b.String(), `a\nb (version`)
}
