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

	_, errOut, status = runInject(t, strings.Replace(injectable, "{name: p}", "{name: p, labels: {sidecar.istio.io/inject: \"yes\"}}", 1), "-f", "-", "--image", "mine:1")
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
	out, errOut, status := runInject(t, injectable, "-f", "-", "--image", "mine:1", "--mesh", mesh)
	require.Equal(t, terminal.ExitOK, status, errOut)
	require.Contains(t, out, `"concurrency":3`)
	require.Contains(t, out, "name: TEAM")
	write("-3")
	_, errOut, status = runInject(t, injectable, "-f", "-", "--image", "mine:1", "--mesh", mesh)
	require.NotEqual(t, terminal.ExitOK, status)
	require.Contains(t, errOut, "-3 is not a number of threads")
}

// TestInjectWithSettingsOfTheCluster checks that the image and all other settings are those of the installation.
func TestInjectWithSettingsOfTheCluster(t *testing.T) {
	kubeconfig := cluster(t)
	t.Run("without a cluster", func(t *testing.T) {
		t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
		t.Setenv("HOME", t.TempDir())
		out, errOut, status := runInject(t, injectable, "-f", "-")
		require.Equal(t, terminal.ExitFailed, status, out)
		require.Empty(t, out)
		require.Contains(t, errOut, "error: no settings of injection\n  where: this machine has no kubeconfig\n  next:  name a cluster with --kubeconfig, or give --image or --config\n")
	})
	for name, tc := range map[string]struct {
		args     []string
		has, not string
	}{
		"the installed image":       {nil, "image: registry.example.com/moonsail:0.1.0\n", "image: moonsail\n"},
		"CNI":                       {nil, "value: cluster-7\n", "NET_ADMIN"},
		"an image":                  {[]string{"--image", "mine:1", "--kubeconfig", kubeconfig}, "image: mine:1\n", "NET_ADMIN"},
		"an image and no cluster":   {[]string{"--image", "mine:1"}, "NET_ADMIN", "cluster-7"},
		"another revision":          {[]string{"--revision", "blue"}, "image: registry.example.com/moonsail:blue\n", "moonsail:0.1.0"},
		"a tag":                     {[]string{"--revision", "prod"}, "image: registry.example.com/moonsail:blue\n", "moonsail:0.1.0"},
		"the default revision":      {[]string{"--revision", "default"}, "moonsail:0.1.0", "moonsail:blue"},
		"defaultConfig of the mesh": {nil, `"concurrency":7`, ""},
		"--mesh":                    {[]string{"--mesh", writeFile(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")}, "moonsail:0.1.0", `"concurrency":7`},
		"a namespace":               {[]string{"-n", "shop"}, "kubernetes://apis/v1/namespaces/shop/pods/p", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", kubeconfig)
			out, errOut, status := runInject(t, injectable, append([]string{"-f", "-"}, tc.args...)...)
			require.Equal(t, terminal.ExitOK, status, errOut)
			require.Contains(t, out, tc.has)
			if tc.not != "" {
				require.NotContains(t, out, tc.not)
			}
		})
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"an unknown revision":  {[]string{"--revision", "green"}, "error: no settings of injection: not found\n  where: ConfigMap moonsail-injection-green of namespace istio-system at http"},
		"another namespace":    {[]string{"-i", "mesh"}, "ConfigMap moonsail-injection of namespace mesh"},
		"a file and a cluster": {[]string{"--config", "c.yaml", "--kubeconfig", kubeconfig}, "--config excludes --kubeconfig and --context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", kubeconfig)
			out, errOut, status := runInject(t, injectable, append([]string{"-f", "-"}, tc.args...)...)
			require.NotEqual(t, terminal.ExitOK, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}

// writeFile writes a file, and returns its path.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestInjectErrors(t *testing.T) {
	_, errOut, status := runInject(t, "", "-f", filepath.Join(t.TempDir(), "nowhere"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "nowhere")
	_, errOut, status = runInject(t, "kind: Deployment\nmetadata: {name: d}\n", "-f", "-", "--image", "mine:1")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "Deployment d: field spec: missing")
	for text, want := range map[string]string{
		"a: 1\n---\nkind: Pod\nmetadata: {name: p\nspec: {}\n": "-f: is not valid YAML: a brace is not closed, or a comma is missing (did not find expected ',' or '}')\n  where: standard input:5",
		"- a\n":     "document 1: not an object",
		"# later\n": "no object found",
	} {
		out, errOut, status := runInject(t, text, "-f", "-", "--image", "mine:1")
		require.Equal(t, terminal.ExitFailed, status)
		require.Contains(t, errOut, want)
		require.Empty(t, out)
	}
	_, errOut, status = runInject(t, "", "-f", t.TempDir())
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "is a directory\n  where: -f ")
	_, errOut, status = runInject(t, injectable, "-f", "-", "--image", "mine:1", "-o", filepath.Join(t.TempDir(), "no", "out.yaml"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "name a file that can be written")
	dir := t.TempDir()
	for name, text := range map[string]string{"bad.yaml": "image: a\nlabels: {a: b\n", "typo.yaml": "imgae: b\n", "list.yaml": "- a\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, tc := range []struct{ flag, file, want string }{
		{"--config", "none.yaml", "error: cannot read it: no such file or directory\n  where: --config " + dir},
		{"--config", "bad.yaml", "error: --config: is not valid YAML: a brace is not closed, or a comma is missing (did not find expected ',' or '}')\n  where: " + filepath.Join(dir, "bad.yaml") + ":2\n"},
		{"--config", "typo.yaml", `error: configuration of injection: unknown field "imgae"` + "\n"},
		{"--mesh", "none.yaml", "error: cannot read it: no such file or directory\n  where: --mesh " + dir},
		{"--mesh", "bad.yaml", "error: --mesh: is not valid YAML: a brace is not closed, or a comma is missing (did not find expected ',' or '}')\n  where: " + filepath.Join(dir, "bad.yaml") + ":2\n"},
	} {
		_, errOut, status = runInject(t, injectable, "-f", "-", "--image", "mine:1", tc.flag, filepath.Join(dir, tc.file))
		require.Equal(t, terminal.ExitFailed, status)
		require.Contains(t, errOut, tc.want)
	}
	_, _, status = runInject(t, "")
	require.NotEqual(t, terminal.ExitOK, status, "-f is missing")
}
