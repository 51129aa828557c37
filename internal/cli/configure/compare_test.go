package configure

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/terminal"
)

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	dumps, page, changed := filepath.Join(dir, "dumps"), filepath.Join(dir, "report.html"), filepath.Join(dir, "changed")
	status, out, errOut := moonsail(t, "compare", "--from", shopDir, "--to", shopDir+"/", "--save", dumps, "--html", page)
	require.Equal(t, terminal.ExitOK, status, out+errOut)
	require.Regexp(t, `^Moonsail with \S+ -> Moonsail with \S+\n\n[0-9,]+ of [0-9,]+ calls of 8 proxies are decided alike\n$`, out)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "calls of 8 proxies are decided alike")

	// Config dumps have the names of the proxies.
	status, again, errOut := moonsail(t, "compare", "--from", dumps, "--to", shopDir)
	require.Equal(t, terminal.ExitOK, status, again+errOut)
	require.Equal(t, last(out), last(again))

	// A policy on one side.
	require.NoError(t, os.CopyFS(changed, os.DirFS(shopDir)))
	require.NoError(t, os.WriteFile(filepath.Join(changed, "deny.yaml"), []byte(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-admin, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}
`), 0o600))
	status, out, _ = moonsail(t, "compare", "--from", dumps, "--to", changed)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "AuthorizationPolicy/shop/no-admin")
	require.Contains(t, out, "answers 403, because of AuthorizationPolicy/shop/no-admin, rules[0]")
	status, out, _ = moonsail(t, "compare", "--from", dumps, "--to", changed, "-o", "json", "--proxy", "cart.shop")
	require.Equal(t, terminal.ExitFailed, status)
	var r compare.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, 1, r.Proxies)
	require.Equal(t, r.Calls, r.Alike+r.Differ)
	require.NotZero(t, r.Differ)
}

// TestCompareOfUpgrade compares two Moonsails of which one does not use HTTP/2 between sidecars. Only from istiod is this on purpose.
func TestCompareOfUpgrade(t *testing.T) {
	dumps := t.TempDir()
	status, _, errOut := moonsail(t, "compare", "--from", shopDir, "--to", shopDir+"/", "--save", dumps)
	require.Equal(t, terminal.ExitOK, status, errOut)
	http2 := regexp.MustCompile(`"http2_protocol_options": \{\s*"allow_connect": true\s*\}`)
	edit := func(plane string) string {
		dir := t.TempDir()
		paths, err := filepath.Glob(filepath.Join(dumps, "*.json.gz"))
		require.NoError(t, err)
		for _, path := range paths {
			text, err := configdump.ReadFile(path)
			require.NoError(t, err)
			require.Regexp(t, http2, string(text))
			text = http2.ReplaceAll(text, []byte(`"http_protocol_options": {}`))
			text = bytes.Replace(text, []byte(`"control_plane": "Moonsail"`), []byte(plane), 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, strings.TrimSuffix(filepath.Base(path), ".gz")), text, 0o600))
		}
		return dir
	}
	for plane, want := range map[string]int{
		`"control_plane": "Moonsail"`:              terminal.ExitFailed,
		`"version_info": "8"`:                      terminal.ExitFailed,
		`"control_plane": "istiod"`:                terminal.ExitOK,
		`"version_info": "2026-01-02T15:04:05Z/7"`: terminal.ExitOK,
	} {
		t.Run(plane, func(t *testing.T) {
			status, out, errOut := moonsail(t, "compare", "--from", edit(plane), "--to", shopDir)
			require.Equal(t, want, status, out+errOut)
			require.Equal(t, want == terminal.ExitOK, strings.Contains(out, "Moonsail's sidecars use HTTP/2 between them"), out)
		})
	}
}

func TestCompareOfWrongInput(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "a.json")
	require.NoError(t, os.WriteFile(broken, []byte(`{"configs": []}`), 0o600))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"one source":          {[]string{"--from", shopDir, "--to", shopDir}, "give two sources"},
		"half a certificate":  {[]string{"--cert", broken}, "--cert and --key belong together"},
		"an unknown proxy":    {[]string{"--from", shopDir, "--to", shopDir + "/", "--proxy", "cart.shop,card.shop"}, `--proxy: proxy "card.shop": not found`},
		"a missing file":      {[]string{"--from", "missing", "--to", shopDir}, "no such file or directory"},
		"a broken dump":       {[]string{"--from", broken, "--to", shopDir}, "no bootstrap with a node id"},
		"an unknown scheme":   {[]string{"--from", "http://a", "--to", shopDir}, "unknown source"},
		"an unreachable port": {[]string{"--from", "xds://127.0.0.1:1", "--to", shopDir}, "cannot read the resources of"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"compare"}, tc.args...)...)
			require.Contains(t, []int{exitDiffFailed, terminal.ExitUsage}, status, errOut)
			require.Contains(t, errOut, tc.want)
		})
	}
}

// last returns the last line of an output.
func last(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
