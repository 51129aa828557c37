package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli/inspect"
	"github.com/moonsail/moonsail/internal/cli/proxyconfig"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/clitest"
)

// aMesh serves the pages of a control plane with the Namespace shop, a Service of namespace data without a Namespace, and two proxies.
func aMesh(t *testing.T, seen func(path string)) string {
	t.Helper()
	pages := map[string]string{
		"/debug/store/Namespace":                    `{"objects": [{"kind": "Namespace", "name": "shop"}]}`,
		"/debug/store/Service":                      `{"objects": [{"kind": "Service", "namespace": "data", "name": "db"}]}`,
		"/debug/store/Pod":                          `{"objects": []}`,
		"/debug/proxies":                            `{"proxies": [{"name": "web-1", "namespace": "shop"}, {"name": "vm-1", "namespace": "hosts"}]}`,
		"/debug/stale":                              `{}`,
		"/debug/changes":                            `{"changes": []}`,
		"/debug/dependencies":                       `{}`,
		"/debug/proxies/web-1.shop/config/clusters": `{"resources": [{"type": "CDS", "name": "outbound|80||db.data.svc.cluster.local"}, {"type": "CDS", "name": "outbound|80|v1|db.data.svc.cluster.local"}, {"type": "CDS", "name": "PassthroughCluster"}]}`,
		"/debug/proxies/web-1.shop/config/routes":   `{"resources": [{"type": "RDS", "name": "80"}]}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen != nil {
			seen(r.URL.Path)
		}
		text, ok := pages[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = `{"error": "proxy is not connected", "next": "see moonsail proxies"}`
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestUnknownNamespace checks that lists of a namespace that the control plane does not know suggest one that it does.
func TestUnknownNamespace(t *testing.T) {
	mesh := aMesh(t, nil)
	for args, want := range map[string]string{
		"proxies -n shp":                "note: namespace \"shp\": the control plane knows nothing in it; did you mean \"shop\"?\n",
		"proxies -n shp -o name":        "note: namespace \"shp\": the control plane knows nothing in it; did you mean \"shop\"?\n",
		"proxies -n dat --certificates": "; did you mean \"data\"?\n",
		"stale -n host":                 "; did you mean \"hosts\"?\n",
		"changes -n production":         "note: namespace \"production\": the control plane knows nothing in it\n",
		"dependencies -n shp":           "; did you mean \"shop\"?\n",
		"proxies -n shop":               "",
		"proxies -n data":               "",
		"proxies -n hosts":              "",
		"proxies":                       "",
	} {
		t.Run(args, func(t *testing.T) {
			status, _, errOut := moonsail(t, append(strings.Fields(args), "--address", mesh)...)
			require.Zero(t, status, errOut)
			if want == "" {
				require.NotContains(t, errOut, "namespace")
			}
			require.Contains(t, errOut, want)
		})
	}
	status, _, errOut := clitest.Run(t, clitest.Root(proxyconfig.NewCommand()), "pc", "routes", "web-1", "-n", "elsewhere", "--address", mesh)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, `; did you mean "web-1.shop"?`)
}

// TestUnknownNamespaceIsNotedFirst checks that --watch, which does not end, begins with the note.
func TestUnknownNamespaceIsNotedFirst(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	mesh := aMesh(t, func(path string) {
		if path == "/debug/proxies" {
			asked++
		}
		if asked == 2 { // the first time it was about namespaces
			cancel()
		}
	})
	var errOut strings.Builder
	root := clitest.Root(inspect.Commands()...)
	root.SetErr(&errOut)
	root.SetArgs([]string{"proxies", "-n", "shp", "-w", "--address", mesh})
	terminal.Run(ctx, root)
	require.Equal(t, 1, strings.Count(errOut.String(), `did you mean "shop"?`), errOut.String())
}

// TestCompleteNames checks that shells complete namespaces, and what filters of proxy-config choose.
func TestCompleteNames(t *testing.T) {
	mesh := aMesh(t, nil)
	for args, want := range map[string][]string{
		"proxies --namespace=":              {"data", "hosts", "shop"},
		"pc clusters web-1 -n=":             {"data", "hosts", "shop"},
		"pc clusters web-1.shop --fqdn=":    {"db.data.svc.cluster.local"},
		"pc clusters web-1 -n shop --name=": {"PassthroughCluster", "db.data.svc.cluster.local"},
		"pc routes web-1.shop --name=":      {"80"},
		"pc routes --name=":                 {},
	} {
		t.Run(args, func(t *testing.T) {
			fields := strings.Fields(args)
			last := len(fields) - 1
			line := append([]string{"__complete"}, fields[:last]...)
			_, out, _ := clitest.Run(t, clitest.Root(append(inspect.Commands(), proxyconfig.NewCommand())...), append(line, "--address", mesh, fields[last])...)
			lines := strings.Split(out, "\n")
			end := 0
			for !strings.HasPrefix(lines[end], ":") {
				end++
			}
			require.ElementsMatch(t, want, lines[:end])
		})
	}
}
