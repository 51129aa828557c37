package configure

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
)

const fixable = `# a comment stays
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews
  trafficPolicy: {loadBalancer: {simple: "random"}} # so does this
  subsets:
  - name: v1
    labels: {version: 1.10}
---
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {ports: [{name: http, port: "80"}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - timout: 1s
    match: [{uri: {prefix: api/}, method: {exact: 'get'}}]
    route: [{destination: {host: reviews}}]
`

const fixed = `# a comment stays
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews
  trafficPolicy: {loadBalancer: {simple: "RANDOM"}} # so does this
  subsets:
  - name: v1
    labels: {version: "1.10"}
---
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http:
  - timeout: 1s
    match: [{uri: {prefix: /api/}, method: {exact: 'GET'}}]
    route: [{destination: {host: reviews}}]
`

// TestFix checks that the patch is what --write writes, that other tools apply it, and that nothing is left.
func TestFix(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("a.yaml", []byte(fixable), 0o600))
	status, patch, errOut := moonsail(t, "analyze", "a.yaml", "--fix")
	require.Zero(t, status, patch)
	require.Equal(t, "6 of 6 problems have a fix (write them with --fix --write)\n", errOut)
	require.Contains(t, patch, "--- a/a.yaml\n+++ b/a.yaml\n@@ -4,15 +4,15 @@\n")
	text, err := os.ReadFile("a.yaml")
	require.NoError(t, err)
	require.Equal(t, fixable, string(text), "the file is not changed")

	require.NoError(t, os.WriteFile("a.patch", []byte(patch), 0o600))
	out, err := exec.CommandContext(t.Context(), "git", "apply", "a.patch").CombinedOutput()
	require.NoError(t, err, string(out))
	text, err = os.ReadFile("a.yaml")
	require.NoError(t, err)
	require.Equal(t, fixed, string(text))

	require.NoError(t, os.WriteFile("a.yaml", []byte(fixable), 0o600))
	status, out2, _ := moonsail(t, "analyze", "a.yaml", "--fix", "-w")
	require.Zero(t, status)
	require.Equal(t, "a.yaml: fixed\n", out2)
	text, err = os.ReadFile("a.yaml")
	require.NoError(t, err)
	require.Equal(t, fixed, string(text))
	status, out2, _ = moonsail(t, "analyze", "a.yaml")
	require.Zero(t, status, out2)
	require.Contains(t, out2, "no problems")
}

// TestFixWritesOnlyNamedFiles checks that --write does not change files that the command line does not name: those of a directory that
// a control plane names, and those to which links lead.
func TestFixWritesOnlyNamedFiles(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Chdir(t.TempDir())
	for _, dir := range []string{"source", "repo/folder", "outside"} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	rule := func(name, mode string) string {
		return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: " + name + ", namespace: shop}\n" +
			"spec: {host: a.example.com, trafficPolicy: {loadBalancer: {simple: " + mode + "}}}\n"
	}
	for name, path := range map[string]string{"source": "source/a.yaml", "change": "change.yaml", "inside": "repo/folder/in.yaml", "outside": "outside/out.yaml"} {
		require.NoError(t, os.WriteFile(path, []byte(rule(name, "random")), 0o600))
	}
	require.NoError(t, os.Symlink("../outside/out.yaml", "repo/out.yaml"))
	require.NoError(t, os.Symlink("../outside", "repo/directory"))
	require.NoError(t, os.Symlink("folder/in.yaml", "repo/link.yaml"))
	source, err := filepath.Abs("source")
	require.NoError(t, err)
	s := httptest.NewServer(debug.Handler(debug.Stages{ConfigDir: source}, slog.New(slog.DiscardHandler)))
	defer s.Close()

	status, out, errOut := moonsail(t, "analyze", "-f", "change.yaml", "--address", s.URL, "--fix", "--write", "--level", "error")
	require.Equal(t, terminal.ExitFailed, status, "the error of the source is left")
	require.Equal(t, "change.yaml: fixed\n", out)
	require.Equal(t, source+"/a.yaml: not fixed: the command line does not name it\n1 of 2 problems had a fix\n", errOut)

	status, out, errOut = moonsail(t, "analyze", "repo", "--fix", "--write", "--level", "error")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "repo/folder/in.yaml: fixed\n")
	require.Contains(t, errOut, "repo/out.yaml: not fixed: a link leads out of repo\n")
	require.Contains(t, errOut, "repo/directory/out.yaml: not fixed: a link leads out of repo\n")
	for path, want := range map[string]string{
		"source/a.yaml": rule("source", "random"), "outside/out.yaml": rule("outside", "random"),
		"change.yaml": rule("change", "RANDOM"), "repo/folder/in.yaml": rule("inside", "RANDOM"),
	} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(text), path)
	}

	status, out, _ = moonsail(t, "analyze", "repo/out.yaml", "--fix", "--write")
	require.Zero(t, status, "a link that the command line names")
	require.Equal(t, "repo/out.yaml: fixed\n", out)
}

// TestFixOfGateway checks corrections whose value another object has.
func TestFixOfGateway(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: istio
  listeners:
  - {name: http, port: 80, protocol: http}
  - {name: public, port: 8080, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: tls}]
  rules:
  - matches: [{path: {type: Prefix, value: /}}]
    backendRefs: [{name: web, port: 81}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
`
	status, patch, errOut := withInput(t, text, "analyze", "-", "--fix", "--level", "error")
	require.Zero(t, status, errOut)
	require.Equal(t, "4 of 4 problems have a fix (write them with --fix --write)\n", errOut)
	for _, line := range []string{
		"  - {name: http, port: 80, protocol: HTTP}", "  parentRefs: [{name: web, sectionName: public}]",
		"  - matches: [{path: {type: PathPrefix, value: /}}]", "    backendRefs: [{name: web, port: 80}]",
	} {
		require.Contains(t, patch, "\n+"+line+"\n")
	}
}

// TestFixOfJSON checks that corrections leave valid JSON. Text keeps its quotes, and only numbers of JSON lose them.
func TestFixOfJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	correct := strings.NewReplacer("1.10", `"1.10"`, "istio_mutual", "ISTIO_MUTUAL", "lables", "labels", `"80"`, "80")
	for name, text := range map[string]string{
		"rule.json": `{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "a", "namespace": "shop", "labels": {"version": 1.10}},
	"spec": {"host": "a", "trafficPolicy": {"tls": {"mode": "istio_mutual"}}, "subsets": [{"name": "v1", "lables": {"a": "b"}}]}}`,
		"service.json": `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "shop"},
	"spec": {"ports": [{"name": "http", "port": "80"}, {"name": "tcp", "port": "0x1p9"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			_, out, errOut := moonsail(t, "analyze", name, "--fix", "--write")
			require.Equal(t, name+": fixed\n", out, errOut)
			got, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, correct.Replace(text), string(got))
			require.True(t, json.Valid(got))
		})
	}
}

// TestFixKeepsNumbersAsWritten checks that quotes do not change what a user wrote as a number.
func TestFixKeepsNumbersAsWritten(t *testing.T) {
	const text = `apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: shop}
spec:
  selector: {matchLabels: {version: 1.10}}
  template:
    metadata:
      labels: {version: 1.10, commit: 1234e5, build: 010}
      annotations: {tracked: 0x1F}
`
	status, patch, errOut := withInput(t, text, "analyze", "-", "--fix")
	require.Zero(t, status, errOut)
	require.Contains(t, patch, "+  selector: {matchLabels: {version: \"1.10\"}}\n")
	require.Contains(t, patch, "+      labels: {version: \"1.10\", commit: \"1234e5\", build: \"010\"}\n")
	require.Contains(t, patch, "+      annotations: {tracked: \"0x1F\"}\n")
	require.Equal(t, "5 of 5 problems have a fix (write them with --fix --write)\n", errOut)
}

// TestFixLeavesTheRest checks that problems without an obvious correction are left, and decide the exit status.
func TestFixLeavesTheRest(t *testing.T) {
	status, patch, errOut := withInput(t, badYAML, "analyze", "-", "--fix", "--level", "error")
	require.Equal(t, terminal.ExitFailed, status, "the misspelt host")
	require.Contains(t, patch, "-  - timout: 1s\n+  - timeout: 1s\n")
	require.Equal(t, "1 of 2 problems have a fix (write them with --fix --write)\n", errOut)

	for name, text := range map[string]string{
		"an alias":       "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: &n shop, labels: {x: *n}}\nspec: {host: a, trafficPolicy: {loadBalancer: {simple: &v random}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {loadBalancer: {simple: *v}}}]}\n",
		"a block":        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: shop}\nspec:\n  host: a\n  trafficPolicy:\n    loadBalancer:\n      simple: |-\n        random\n",
		"no mistake":     goodYAML,
		"invalid syntax": "a: [\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, patch, _ := withInput(t, text, "analyze", "-", "--fix")
			require.Empty(t, patch)
		})
	}
	status, patch, _ = withInput(t, badYAML+"---\na: [\n", "analyze", "-", "--fix")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, patch, "+  - timeout: 1s\n", "a syntax error behind it does not matter")
	for _, args := range [][]string{{"analyze", "-", "--fix", "-w"}, {"analyze", "--fix"}, {"analyze", ".", "-w"}} {
		status, _, _ := moonsail(t, args...)
		require.Equal(t, terminal.ExitUsage, status)
	}
}

// TestPatchOfPaths checks that git applies patches of files below the current directory, however they are named.
func TestPatchOfPaths(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "in", "side"), 0o700))
	t.Chdir(filepath.Join(dir, "in"))
	for name, tc := range map[string]struct {
		args []string
		file string // empty: it is not below the current directory
	}{
		"of this directory":        {[]string{"./a.yaml"}, "a.yaml"},
		"with a detour":            {[]string{"side/../a.yaml"}, "a.yaml"},
		"through the one above":    {[]string{"../in/a.yaml"}, "a.yaml"},
		"absolute":                 {[]string{filepath.Join(dir, "in", "side", "a.yaml")}, "side/a.yaml"},
		"named twice":              {[]string{"a.yaml", "./a.yaml"}, "a.yaml"},
		"named with its directory": {[]string{"./side", "side/./a.yaml"}, "side/a.yaml"},
		"elsewhere":                {[]string{"../a.yaml"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := tc.args[0]
			if tc.file != "" {
				path = tc.file
			}
			require.NoError(t, os.WriteFile(path, []byte(fixable), 0o600))
			status, patch, errOut := moonsail(t, append([]string{"analyze", "--fix"}, tc.args...)...)
			require.Zero(t, status, errOut)
			if tc.file == "" {
				require.Contains(t, patch, "--- "+filepath.Join(dir, "a.yaml")+"\n")
				return
			}
			require.Contains(t, patch, "--- a/"+tc.file+"\n+++ b/"+tc.file+"\n")
			cmd := exec.CommandContext(t.Context(), "git", "apply")
			cmd.Stdin = strings.NewReader(patch)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, fixed, string(got))
		})
	}
}

// TestPatch checks hunks: changes that are near are one, and the end of a file without a line break is marked.
func TestPatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	text := "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: shop\n  labels:\n    a: 1\n    b: b\n    c: c\n    d: d\n    e: e\n    f: f\n    g: g\n    h: h\n    i: i\nspec:\n  ports:\n  - name: http\n    port: \"80\""
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	_, patch, _ := moonsail(t, "analyze", path, "--fix")
	require.Equal(t, "--- "+path+"\n+++ "+path+"\n@@ -4,7 +4,7 @@\n   name: a\n   namespace: shop\n   labels:\n-    a: 1\n+    a: \"1\"\n     b: b\n     c: c\n     d: d\n"+
		"@@ -16,4 +16,4 @@\n spec:\n   ports:\n   - name: http\n-    port: \"80\"\n\\ No newline at end of file\n+    port: 80\n\\ No newline at end of file\n", patch)
}
