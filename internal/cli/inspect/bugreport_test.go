package inspect

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/bugreport"
	"github.com/moonsail/moonsail/internal/terminal"
)

// readReport returns the files of a report by name.
func readReport(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	zip, err := gzip.NewReader(f)
	require.NoError(t, err)
	out := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		out[name] = string(text)
	}
}

// TestBugReport checks that the archive has the pages, and proxies with problems first, without
// secrets, and that the manifest lists what is missing.
func TestBugReport(t *testing.T) {
	const hidden = "hunter2-hunter2"
	pages := map[string]string{
		"/version":             `{"version":"1"}`,
		"/debug/pprof/cmdline": "moonsail\x00serve\x00--x-password=" + hidden,
		"/debug/proxies": `{"proxies":[{"name":"a","namespace":"shop"},{"name":"b","namespace":"shop","owed":3},
			{"name":"c","namespace":"shop","types":[{"held":[{"name":"x"}]}]}]}`,
		"/debug/proxies/c.shop":                   `{"name":"c"}`,
		"/debug/proxies/c.shop/envoy/config_dump": `{"env":[{"name":"TOKEN","value":"` + hidden + `"}],"x":"kept"}`,
		"/debug/pprof/heap":                       "binary",
		"/debug/configz":                          `[{"kind": "EnvoyFilter", "metadata": {"name": "add-region"}, "spec": {"password": "` + hidden + `", "script": "kept"}}]`,
		"/debug/problems":                         `{"problems": {"config": null, "translation": null}}`,
		"/debug/store/Ingress":                    `{"revision": 3, "objects": []}`,
		"/debug/store/Service":                    `{"revision": 3, "objects": [{"name": "web"}]}`,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = `{"error":"` + strings.TrimPrefix(r.URL.Path, "/") + `: not part of this process"}`
			if rest, ok := strings.CutPrefix(r.URL.Path, "/debug/proxies/"); ok {
				proxy, _, _ := strings.Cut(rest, "/")
				text = fmt.Sprintf(`{"error":"proxy \"%s\" is not connected","next":"see 'moonsail proxies' for connected proxies"}`, proxy)
			}
		}
		_, _ = io.WriteString(w, text)
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	status, out, errOut := moonsail(t, "bug-report", "--address", srv.URL, "--file", file, "--proxies", "2")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "not read metrics.txt: control plane at "+srv.URL+": metrics: not part of this process")
	files := readReport(t, file)
	for name, text := range files {
		require.NotContains(t, text, hidden, name)
	}
	require.Contains(t, files["flags.txt"], "--x-password=[redacted]")
	require.Contains(t, files["proxies/c.shop/config_dump.json"], "kept")
	require.Equal(t, "binary", files["profiles/heap.pb.gz"])
	var m bugreport.Manifest
	require.NoError(t, json.Unmarshal([]byte(files["manifest.json"]), &m))
	names := map[string]bugreport.File{}
	for _, f := range m.Files {
		names[f.Name] = f
	}
	require.Equal(t, "apiVersion: v1\nitems:\n- kind: EnvoyFilter\n  metadata:\n    name: add-region\n  spec:\n    password: '[redacted]'\n    script: kept\nkind: List\n",
		files["configuration.yaml"])
	require.JSONEq(t, `[{"proxy": "c.shop", "type": "", "name": "x", "version": "", "message": ""}]`, files["refusals.json"])
	require.Contains(t, files, "store/Service.json")
	for _, empty := range []string{"store/Ingress.json", "problems.json"} {
		require.NotContains(t, files, empty)
		require.True(t, names[empty].Empty, empty)
	}
	require.Contains(t, out, "2 files left out, as they are empty: see manifest.json\n")
	require.Contains(t, names, "proxies/c.shop/logs.txt", "it has refused something")
	require.Contains(t, names, "proxies/b.shop/logs.txt", "it is behind")
	require.NotContains(t, names, "proxies/a.shop/logs.txt")
	require.Contains(t, names["proxies/b.shop/logs.txt"].Error, `proxy "b.shop" is not connected`)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	// --namespace applies to proxies that the command chooses itself, too.
	other := filepath.Join(t.TempDir(), "other.tar.gz")
	status, _, errOut = moonsail(t, "bug-report", "--address", srv.URL, "--file", other, "-n", "bank")
	require.Zero(t, status, errOut)
	require.NotContains(t, readReport(t, other)["manifest.json"], "proxies/c.shop")

	// A misspelt proxy is an error, and an existing report stays.
	status, out, errOut = moonsail(t, "bug-report", "--address", srv.URL, "--file", file, "c.shop", "bb.shop")
	require.Equal(t, terminal.ExitFailed, status)
	require.Empty(t, out)
	require.Contains(t, errOut, `error: proxy "bb.shop" is not connected; did you mean "b.shop"?`)
	require.Contains(t, errOut, "next:  see 'moonsail proxies --address "+srv.URL+"' for connected proxies")
	require.Contains(t, readReport(t, file), "flags.txt")

	// Without an answer no report is written, and an existing report stays.
	srv.Close()
	status, _, errOut = moonsail(t, "bug-report", "--address", srv.URL, "--file", file, "a.shop")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "nothing can be read: ")
	require.Contains(t, errOut, "set --address to the control plane")
	require.Contains(t, readReport(t, file), "flags.txt")
	status, _, _ = moonsail(t, "bug-report", "--file", filepath.Join(file, "x"))
	require.Equal(t, 1, status)
	status, _, _ = moonsail(t, "bug-report", "--max-size", "0")
	require.Equal(t, 2, status)
}

// TestBugReportOfFrozenEnvoy checks that the report waits for a frozen Envoy once, and has the log of its agent.
func TestBugReportOfFrozenEnvoy(t *testing.T) {
	for name, frozen := range map[string]http.HandlerFunc{
		"the control plane gives up": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = io.WriteString(w, `{"error":"agent of the proxy: no answer"}`)
		},
		"the command gives up": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0 // requests come one after another
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page, ofEnvoy := strings.CutPrefix(r.URL.Path, "/debug/proxies/a.shop/envoy/")
				if ofEnvoy && page != "logs" {
					asked++
					frozen(w, r)
					return
				}
				_, _ = io.WriteString(w, "{}")
			}))
			defer srv.Close()
			file := filepath.Join(t.TempDir(), "report.tar.gz")
			status, out, errOut := moonsail(t, "bug-report", "a.shop", "--address", srv.URL, "--file", file, "--timeout", "200ms")
			require.Zero(t, status, errOut)
			require.Equal(t, 1, asked)
			require.Contains(t, out, "not read proxies/a.shop/stats.txt: left out: its Envoy did not answer in time for in-use.json\n")
			require.Contains(t, readReport(t, file), "proxies/a.shop/logs.txt")
		})
	}
}
