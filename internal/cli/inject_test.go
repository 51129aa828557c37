package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/webhook"
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

// injects runs moonsail inject.
func injects(t *testing.T, stdin string, args ...string) (out, said string, status int) {
	t.Helper()
	root := NewRootCommand()
	var o, e bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(append([]string{"inject"}, args...))
	status = terminal.Run(context.Background(), root)
	return o.String(), e.String(), status
}

func TestInjectCommand(t *testing.T) {
	out, said, status := injects(t, injectable, "-f", "-", "--image", "mine:1", "--classic-sidecar")
	require.Equal(t, terminal.ExitOK, status, said)
	require.Contains(t, out, "image: mine:1")
	require.NotContains(t, out, "restartPolicy: Always")
	require.Contains(t, said, "Pod host gets no sidecar: it is on the host's network")

	dir := t.TempDir()
	in, config, to := filepath.Join(dir, "in.yaml"), filepath.Join(dir, "config.yaml"), filepath.Join(dir, "out.yaml")
	require.NoError(t, os.WriteFile(in, []byte(injectable), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("revision: canary\n"), 0o600))
	out, said, status = injects(t, "", "-f", in, "-o", to, "--config", config)
	require.Equal(t, terminal.ExitOK, status, said)
	require.Empty(t, out)
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Contains(t, string(text), "istio.io/rev: canary")
	require.Contains(t, string(text), "restartPolicy: Always")
}

// TestInjectCommandGoesByTheMesh: what it says of sidecars counts as in the webhook.
func TestInjectCommandGoesByTheMesh(t *testing.T) {
	mesh := filepath.Join(t.TempDir(), "mesh.yaml")
	write := func(concurrency string) {
		require.NoError(t, os.WriteFile(mesh, []byte(`apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: all, namespace: istio-system}
spec: {concurrency: `+concurrency+`, environmentVariables: {TEAM: shop}}
`), 0o600))
	}
	write("3")
	out, said, status := injects(t, injectable, "-f", "-", "--mesh", mesh)
	require.Equal(t, terminal.ExitOK, status, said)
	require.Contains(t, out, `"concurrency":3`)
	require.Contains(t, out, "name: TEAM")
	write("-3")
	_, said, status = injects(t, injectable, "-f", "-", "--mesh", mesh)
	require.NotEqual(t, terminal.ExitOK, status)
	require.Contains(t, said, "-3 is no number of threads")
}

func TestInjectCommandMistakes(t *testing.T) {
	_, said, status := injects(t, "", "-f", filepath.Join(t.TempDir(), "nowhere"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, said, "nowhere")
	_, said, status = injects(t, "kind: Deployment\nmetadata: {name: d}\n", "-f", "-")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, said, "Deployment d: there is no spec")
	for text, want := range map[string]string{
		"a: 1\n---\nkind: Pod\nmetadata: {name: p\nspec: {}\n": "nothing was injected: is not valid YAML: did not find expected ',' or '}'\n  where: standard input:5",
		"- a\n":     "document 1: is not an object",
		"# later\n": "no object found",
	} {
		out, said, status := injects(t, text, "-f", "-")
		require.Equal(t, terminal.ExitFailed, status)
		require.Contains(t, said, want)
		require.Empty(t, out)
	}
	_, said, status = injects(t, "", "-f", t.TempDir())
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, said, "is a directory\n  where: -f ")
	_, said, status = injects(t, injectable, "-f", "-", "-o", filepath.Join(t.TempDir(), "no", "out.yaml"))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, said, "name a file that can be written")
	dir := t.TempDir()
	for name, text := range map[string]string{"bad.yaml": "image: a\nlabels: {a: b\n", "typo.yaml": "imgae: b\n", "list.yaml": "- a\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, tc := range []struct{ flag, file, want string }{
		{"--config", "none.yaml", "error: cannot be read: no such file or directory\n  where: --config " + dir},
		{"--config", "bad.yaml", "error: --config: is not valid YAML: did not find expected ',' or '}'\n  where: " + filepath.Join(dir, "bad.yaml") + ":2\n"},
		{"--config", "typo.yaml", `error: configuration of injection: unknown field "imgae"` + "\n"},
		{"--mesh", "none.yaml", "error: cannot be read: no such file or directory\n  where: --mesh " + dir},
		{"--mesh", "bad.yaml", "error: --mesh: is not valid YAML: did not find expected ',' or '}'\n  where: " + filepath.Join(dir, "bad.yaml") + ":2\n"},
	} {
		_, said, status = injects(t, injectable, "-f", "-", tc.flag, filepath.Join(dir, tc.file))
		require.Equal(t, terminal.ExitFailed, status)
		require.Contains(t, said, tc.want)
	}
	_, _, status = injects(t, "")
	require.NotEqual(t, terminal.ExitOK, status, "-f is missing")
}

func TestServeInjectFlags(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("imgae: x\n"), 0o600))
	for _, tt := range []struct {
		f       serveInjectFlags
		o       webhook.Options
		cluster bool
		want    string
	}{
		{serveInjectFlags{file: "x"}, webhook.Options{}, true, "give --inject too"},
		{serveInjectFlags{on: true}, webhook.Options{}, true, "--webhook-addr"},
		{serveInjectFlags{on: true, config: "c"}, webhook.Options{Addr: ":1", CertFile: "f"}, true, "--webhook-cert"},
		{serveInjectFlags{on: true, config: "c"}, webhook.Options{Addr: ":1"}, false, "--config"},
		{serveInjectFlags{on: true, file: bad}, webhook.Options{Addr: ":1"}, true, "imgae"},
		{serveInjectFlags{on: true, file: bad + "x"}, webhook.Options{Addr: ":1"}, true, "bad.yamlx"},
	} {
		require.ErrorContains(t, tt.f.into(&tt.o, tt.cluster), tt.want)
	}
	o := webhook.Options{Addr: ":1"}
	require.NoError(t, (&serveInjectFlags{on: true, config: "c"}).into(&o, true))
	require.Equal(t, "c", o.InjectConfig)
	require.NotNil(t, o.Inject)
	o = webhook.Options{}
	require.NoError(t, (&serveInjectFlags{}).into(&o, true))
	require.Nil(t, o.Inject)
}
