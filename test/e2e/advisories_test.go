package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// raw sends bytes to a guarded workload's sidecar, and returns the statuses of the answers until it closes the
// connection or is silent.
func (g *guarded) raw(text string) []int {
	g.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(g.t.Context(), "tcp", fmt.Sprintf("%s:%d", g.ip, guardedHTTP))
	require.NoError(g.t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(g.t, conn.SetDeadline(time.Now().Add(callLimit)))
	_, err = io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n"))
	require.NoError(g.t, err)
	var out []int
	r := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return out
		}
		out = append(out, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.Close {
			return out
		}
	}
}

// closing is what ends a request after which the connection closes.
const closing = "Host: web\nConnection: close\n\n"

// TestAdvisoriesOfRequests tries requests by which advisories of Istio and Envoy got around policies
// (docs/design/security-advisories.md). Each must be refused by a policy (403) or by Envoy (400 and so on).
func TestAdvisoriesOfRequests(t *testing.T) {
	g := startGuarded(t)
	g.given(
		authorization("paths", `{action: DENY, rules: [{to: [{operation: {paths: [/admin, "/admin/*", "/of/{*}/admin", "/all/{**}/admin"]}}]}]}`),
		authorization("header", `{action: DENY, rules: [{when: [{key: "request.headers[x-role]", values: [admin]}]}]}`),
		authorization("methods", `{action: DENY, rules: [{to: [{operation: {methods: [DELETE]}}]}]}`),
		authorization("hosts", `{action: DENY, rules: [{to: [{operation: {hosts: [admin.example.com]}}]}]}`),
	)
	g.requireStatus(403, "GET", "/admin")
	g.requireStatus(200, "GET", "/")
	refused := func(codes []int) bool {
		for _, c := range codes {
			if c < 400 {
				return false
			}
		}
		return true // also if the connection closed without an answer
	}
	for name, text := range map[string]string{
		"a fragment (CVE-2021-39156, CVE-2021-32779)":              "GET /admin#x HTTP/1.1\n" + closing,
		"a fragment after dots":                                    "GET /a/../admin#/x HTTP/1.1\n" + closing,
		"dots that are escaped":                                    "GET /a/%2e%2e/admin HTTP/1.1\n" + closing,
		"a backslash":                                              "GET /a\\..\\admin HTTP/1.1\n" + closing,
		"an absolute path":                                         "GET http://web/admin HTTP/1.1\n" + closing,
		"a scheme in mixed case (CVE-2023-35944)":                  "GET hTTp://web/admin HTTP/1.1\n" + closing,
		"an absolute path whose host differs":                      "GET http://admin.example.com/ HTTP/1.1\n" + closing,
		"a NUL":                                                    "GET /admin%00 HTTP/1.1\n" + closing,
		"a query":                                                  "GET /admin?x=/public HTTP/1.1\n" + closing,
		"a header with several lines (CVE-2026-26308)":             "GET / HTTP/1.1\nx-role: user\nx-role: admin\n" + closing,
		"that header, the other way round":                         "GET / HTTP/1.1\nx-role: admin\nx-role: user\n" + closing,
		"a header in another case":                                 "GET / HTTP/1.1\nX-ROLE: admin\n" + closing,
		"a header with white space (CVE-2019-18802)":               "GET / HTTP/1.1\nx-role: admin \t\n" + closing,
		"a folded header":                                          "GET / HTTP/1.1\nx-role:\n admin\n" + closing,
		"a header with white space before the colon":               "GET / HTTP/1.1\nx-role : admin\n" + closing,
		"a method in lower case":                                   "delete / HTTP/1.1\n" + closing,
		"a host with a port":                                       "GET / HTTP/1.1\nHost: admin.example.com:1\nConnection: close\n\n",
		"two hosts, the other way round":                           "GET / HTTP/1.1\nHost: admin.example.com\nHost: web\nConnection: close\n\n",
		"two hosts":                                                "GET / HTTP/1.1\nHost: web\nHost: admin.example.com\nConnection: close\n\n",
		"two hosts, one not UTF-8 (CVE-2026-73552)":                "GET / HTTP/1.1\nHost: \xff,admin.example.com\nConnection: close\n\n",
		"two hosts, the last not UTF-8":                            "GET / HTTP/1.1\nHost: admin.example.com,\xff\nConnection: close\n\n",
		"dots with parameters (CVE-2026-73551)":                    "GET /a/..;x=y/admin HTTP/1.1\n" + closing,
		"escaped dots with parameters":                             "GET /a/%2e%2e;x=y/admin HTTP/1.1\n" + closing,
		"an escaped dot with parameters":                           "GET /.%2E;/%2e;x/admin HTTP/1.1\n" + closing,
		"HTTP/1.0":                                                 "GET /admin HTTP/1.0\nHost: web\n\n",
		"length and chunks":                                        "POST / HTTP/1.1\nContent-Length: 4\nTransfer-Encoding: chunked\n" + "Host: web\n\n0\n\nGET /admin HTTP/1.1\n" + closing,
		"two lengths":                                              "POST / HTTP/1.1\nContent-Length: 0\nContent-Length: 40\nHost: web\n\nGET /admin HTTP/1.1\n" + closing,
		"a chunked encoding that is disguised":                     "POST / HTTP/1.1\nTransfer-Encoding: xchunked\nHost: web\n\n0\n\nGET /admin HTTP/1.1\n" + closing,
		"CONNECT":                                                  "CONNECT admin.example.com:80 HTTP/1.1\nHost: admin.example.com\n\n",
		"an original path that the client claims (CVE-2023-27487)": "GET /admin HTTP/1.1\nx-envoy-original-path: /public\n" + closing,
		"a rewritten path that the client claims":                  "GET /admin HTTP/1.1\nx-rewrite-url: /public\nx-original-url: /public\n" + closing,
		"a template, by a star (CVE-2025-46821)":                   "GET /of/*/admin HTTP/1.1\n" + closing,
		"a template, by brackets":                                  "GET /of/[x]/admin HTTP/1.1\n" + closing,
		"a template, by a bar":                                     "GET /of/x|y/admin HTTP/1.1\n" + closing,
		"a template, by a caret":                                   "GET /of/^/admin HTTP/1.1\n" + closing,
		"a template, by braces":                                    "GET /of/{x}/admin HTTP/1.1\n" + closing,
		"a template, by quotes":                                    "GET /of/\"`'<>/admin HTTP/1.1\n" + closing,
		"a template, by a byte that is not ASCII":                  "GET /of/\xff/admin HTTP/1.1\n" + closing,
		"a template of segments, by brackets":                      "GET /all/a/[x]/admin HTTP/1.1\n" + closing,
		"an upgrade that a policy refuses":                         "GET /admin HTTP/1.1\nHost: web\nConnection: upgrade\nUpgrade: websocket\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			got := g.raw(text)
			require.True(t, refused(got), "%v", got)
		})
	}
	require.Equal(t, []int{200}, g.raw("GET / HTTP/1.1\n"+closing), "others pass")
	require.Equal(t, []int{200}, g.raw("GET /adminx HTTP/1.1\n"+closing), "others pass")
}

// TestUpgradesSmuggleNothing checks that a request that follows an upgrade, before the server has accepted or refused
// it, is not served without a decision (CVE-2024-23326, CVE-2025-64763).
func TestUpgradesSmuggleNothing(t *testing.T) {
	g := startGuarded(t)
	g.given(authorization("paths", `{action: DENY, rules: [{to: [{operation: {paths: ["/admin*"]}}]}]}`))
	g.requireStatus(403, "GET", "/admin")
	for name, upgrade := range map[string]string{
		"websocket": "GET / HTTP/1.1\nHost: web\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n\n",
		"h2c":       "GET / HTTP/1.1\nHost: web\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\n\n",
		"unknown":   "GET / HTTP/1.1\nHost: web\nConnection: Upgrade\nUpgrade: other\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			got := g.raw(upgrade + "GET /admin HTTP/1.1\n" + closing)
			for i, code := range got {
				require.False(t, i > 0 && code < 400, "the second request is served: %v", got)
			}
		})
	}
	g.requireNothingAt("/admin")
}

// requireNothingAt checks that no request for a path has reached the application.
func (g *guarded) requireNothingAt(path string) {
	g.t.Helper()
	for _, s := range g.web.requests() {
		require.NotEqual(g.t, path, s.path, "%s %s of %s reached the application", s.method, s.path, s.host)
	}
}
