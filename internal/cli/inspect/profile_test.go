package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/test/await"
)

// profiled starts a control plane with one proxy, whose Envoy is the given process.
func profiled(t *testing.T, process workers.Process) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/proxies", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"proxies":[{"name":"web","namespace":"shop"}]}`)
	})
	mux.HandleFunc("/debug/proxies/web.shop/envoy/workers", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(workers.Report{Process: process})
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// fakePerf makes a script called perf the only program on PATH.
func fakePerf(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "perf"), []byte("#!/bin/sh\n"+script), 0o700))
	t.Setenv("PATH", dir)
}

func TestProfileErrors(t *testing.T) {
	here := profiled(t, workers.Identify("/proc", os.Getpid()))
	away := profiled(t, workers.Process{PID: 7, Namespace: "pid:[1]", Boot: "another"})
	pid := fmt.Sprint(os.Getpid())
	const refuses = "echo 'Access to performance monitoring and observability operations is limited.' >&2; exit 255"
	for _, tc := range []struct {
		name, perf string
		args       []string
		status     int
		want       []string
	}{
		{"no proxy", "", []string{}, 2, []string{"name either a proxy, or a process with --pid"}},
		{"proxy and pid", "", []string{"web.shop", "--pid", pid}, 2, []string{"name either a proxy"}},
		{"too short", "", []string{"web.shop", "--duration", "1ms"}, 2, []string{"--duration 1ms: out of range: use 1s"}},
		{"no frequency", "", []string{"web.shop", "--frequency", "0"}, 2, []string{"--frequency 0: out of range: use 1"}},
		{"other machine", "exit 0", []string{"web.shop", "--address", away}, 1, []string{"cannot sample the Envoy of web.shop: it runs on another machine", "run this command as root on the proxy's machine"}},
		{"no perf", "", []string{"web.shop", "--address", here}, 1, []string{"cannot sample the Envoy of web.shop, process " + pid + ": perf: not found on this machine", "linux-perf"}},
		{"not permitted", refuses, []string{"--pid", pid}, 1, []string{"the kernel refuses permission (kernel.perf_event_paranoid is ", "run this command as root"}},
		{"no such process", "exit 1", []string{"--pid", "999999999"}, 1, []string{"no such process", "moonsail proxies"}},
		{"idle", "exit 0", []string{"--pid", pid}, 1, []string{"used no CPU", "--duration"}},
		{"no control plane", "", []string{"web.shop", "--address", "127.0.0.1:1"}, 1, []string{"no control plane answers"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if fakePerf(t, tc.perf); tc.perf == "" {
				t.Setenv("PATH", t.TempDir())
			}
			status, out, errOut := moonsail(t, append([]string{"profile"}, tc.args...)...)
			require.Equal(t, tc.status, status, errOut)
			require.Empty(t, out)
			for _, text := range tc.want {
				require.Contains(t, errOut, text)
			}
		})
	}
}

func TestProfileProxy(t *testing.T) {
	address := profiled(t, workers.Identify("/proc", os.Getpid()))
	fakePerf(t, `[ $1 = script ] || exit 0
echo 'wrk:worker_0 12'
echo '	4711 work (/opt/envoy)'
echo '	4712 [unknown] (/opt/envoy)'
echo
`)
	dir := t.TempDir()
	status, out, errOut := moonsail(t, "profile", "web.shop", "--address", address, "--out", dir)
	require.Zero(t, status, errOut)
	require.Contains(t, out, fmt.Sprintf("the Envoy of web.shop, process %d: ", os.Getpid()))
	require.Regexp(t, `(?m)^THREAD +CPU +SAMPLES +MOST IN$`, out)
	require.Regexp(t, `(?m)^wrk:worker_0 +\? +100.0% +work$`, out)
	require.Regexp(t, `(?m)^100.0% +100.0% +work$`, out)
	folded, err := os.ReadFile(filepath.Join(dir, "stacks.folded"))
	require.NoError(t, err)
	require.Equal(t, "wrk:worker_0;envoy_[u];work 1\n", string(folded))

	status, out, errOut = moonsail(t, "__complete", "profile", "--address", address, "")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "web.shop\n")
	_, out, _ = moonsail(t, "__complete", "profile", "c")
	require.Contains(t, out, "control-plane\t")
}

// TestProfileControlPlane profiles this process while it works.
func TestProfileControlPlane(t *testing.T) {
	address := profiled(t, workers.Process{})
	done, worked := make(chan struct{}), make(chan int)
	go spin(done, worked)
	dir := t.TempDir()
	status, out, errOut := moonsail(t, "profile", "control-plane", "--address", address, "--duration", "1s", "--out", dir, "-o", "json")
	close(done)
	await.From(t, worked)
	require.Zero(t, status, errOut)
	var p struct {
		Subject string
		Samples int64
		Threads []struct {
			Name string
			CPU  float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	require.Equal(t, "the control plane at "+address, p.Subject)
	require.Positive(t, p.Samples)
	require.Contains(t, errOut, "wrote profile.svg, stacks.folded and profile.json to "+dir)
	var names []string
	for _, th := range p.Threads {
		names = append(names, th.Name)
	}
	require.Contains(t, names, "github.com/moonsail/moonsail/internal/cli/inspect.spin")
	require.FileExists(t, filepath.Join(dir, "cpu.pprof"))
}

// spin uses CPU until done is closed.
func spin(done <-chan struct{}, worked chan<- int) {
	for n := 0; ; n++ {
		select {
		case <-done:
			worked <- n
			return
		default:
		}
	}
}
