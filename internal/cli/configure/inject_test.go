package configure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

const injectable = `apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: app, image: app:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec: {hostNetwork: true, containers: [{name: app, image: app:1}]}
`

// runInject runs `moonsail inject`.
func runInject(t *testing.T, stdin string, args ...string) (out, errOut string, status int) {
	t.Helper()
	status, out, errOut = withInput(t, stdin, append([]string{"inject"}, args...)...)
	return out, errOut, status
}

func TestInject(t *testing.T) {
	out, errOut, status := runInject(t, injectable, "-f", "-", "--image", "mine:1", "--classic-sidecar")
	require.Equal(t, terminal.ExitOK, status, errOut)
	require.Contains(t, out, "image: mine:1")
	require.NotContains(t, out, "restartPolicy: Always")
	require.Contains(t, errOut, "Pod host: no sidecar: it uses the host's network")

	_, errOut, status = runInject(t, strings.Replace(injectable, "{name: p}", "{name: p, labels: {sidecar.istio.io/inject: \"yes\"}}", 1), "-f", "-")
	require.Equal(t, terminal.ExitOK, status, errOut)
	require.Contains(t, errOut, "Pod p: the label sidecar.istio.io/inject: \"yes\" has no effect: write \"true\" or \"false\"\n")

	dir := t.TempDir()
	in, config, to := filepath.Join(dir, "in.yaml"), filepath.Join(dir, "config.yaml"), filepath.Join(dir, "out.yaml")
	require.NoError(t, os.WriteFile(in, []byte(injectable), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("revision: canary\n"), 0o600))
	out, errOut, status = runInject(t, "", "-f", in, "-o", to, "--config", config)
	require.Equal(t, terminal.ExitOK, status, errOut)
	require.Empty(t, out)
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Contains(t, string(text), "istio.io/rev: canary")
	require.Contains(t, string(text), "restartPolicy: Always")
}

// TestInjectReadsTheMesh checks that ProxyConfigs of --mesh apply, as in the webhook.
func TestInjectReadsTheMesh(t *testing.T) {
	mesh := filepath.Join(t.TempDir(), "mesh.yaml")
	write := func(concurrency string) {
		require.NoError(t, os.WriteFile(mesh, []byte(`apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: all, namespace: istio-system}
spec: {concurrency: `+concurrency+`, environmentVariables: {TEAM: shop}}
`), 0o600))
	}
	write("3")
	out, errOut, status := runInject(t, injectable, "-f", "-", "--mesh", mesh)
	require.Equal(t, terminal.ExitOK, status, errOut)
	require.Contains(t, out, `"concurrency":3`)
	require.Contains(t, out, "name: TEAM")
	write("-3")
	_, errOut, status = runInject(t, injectable, "-f", "-", "--mesh", mesh)
	require.NotEqual(t, terminal.ExitOK, status)
	require.Contains(t, errOut, "-3 is not a number of threads")
}

func TestInjectErrors(t *testing.T) {
	_, errOut, status := runInject(t, "", "-f", filepath.Join(t.TempDir(), "nowhere"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "nowhere")
	_, errOut, status = runInject(t, "kind: Deployment\nmetadata: {name: d}\n", "-f", "-")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "Deployment d: field spec: missing")
	for text, want := range map[string]string{
		"a: 1\n---\nkind: Pod\nmetadata: {name: p\nspec: {}\n": "-f: is not valid YAML: did not find expected ',' or '}'\n  where: standard input:5",
		"- a\n":     "document 1: not an object",
		"# later\n": "no object found",
	} {
		out, errOut, status := runInject(t, text, "-f", "-")
		require.Equal(t, terminal.ExitFailed, status)
		require.Contains(t, errOut, want)
		require.Empty(t, out)
	}
	_, errOut, status = runInject(t, "", "-f", t.TempDir())
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "is a directory\n  where: -f ")
	_, errOut, status = runInject(t, injectable, "-f", "-", "-o", filepath.Join(t.TempDir(), "no", "out.yaml"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "name a file that can be written")
	dir := t.TempDir()
	for name, text := range map[string]string{"bad.yaml": "image: a\nlabels: {a: b\n", "typo.yaml": "imgae: b\n", "list.yaml": "- a\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, tc := range []struct{ flag, file, want string }{
		{"--config", "none.yaml", "error: cannot read it: no such file or directory\n  where: --config " + dir},
		{"--config", "bad.yaml", "error: --config: is not valid YAML: did not find expected ',' or '}'\n  where: " + filepath.Join(dir, "bad.yaml") + ":2\n"},
		{"--config", "typo.yaml", `error: configuration of injection: unknown field "imgae"` + "\n"},
		{"--mesh", "none.yaml", "error: cannot read it: no such file or directory\n  where: --mesh " + dir},
		{"--mesh", "bad.yaml", "error: --mesh: is not valid YAML: did not find expected ',' or '}'\n  where: " + filepath.Join(dir, "bad.yaml") + ":2\n"},
	} {
		_, errOut, status = runInject(t, injectable, "-f", "-", tc.flag, filepath.Join(dir, tc.file))
		require.Equal(t, terminal.ExitFailed, status)
		require.Contains(t, errOut, tc.want)
	}
	_, _, status = runInject(t, "")
	require.NotEqual(t, terminal.ExitOK, status, "-f is missing")
}
