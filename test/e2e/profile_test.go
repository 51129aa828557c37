package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/profile"
	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestProfile profiles a sidecar's Envoy under load, through the control plane and its agent. The result must list its
// workers, with classes of Envoy. Without perf, or if the kernel forbids it, the error must state the reason and what
// to do.
func TestProfile(t *testing.T) {
	o := &rollout{t: t, protocol: "http", change: func(*agent.Config) {}}
	o.mesh = startMesh(t, server.RoutesAuto, o.config()...)
	o.add()
	m, name := o.mesh, o.replicas[0].name+".shop"
	m.apply(o.config()...)
	defer callUntilStopped(t, fmt.Sprintf("http://%s:%d/", o.replicas[0].ip, replicaPort))()

	dir := t.TempDir()
	status, out := m.ask("profile", name, "--duration", "3s", "--frequency", "999", "--out", dir, "-o", "json")
	if _, err := exec.LookPath("perf"); err != nil {
		require.Equal(t, 1, status)
		require.Contains(t, out, profile.ErrNoPerf.Error())
		require.Contains(t, out, "linux-perf")
		return
	}
	if strings.Contains(out, profile.ErrNotPermitted.Error()) {
		require.Contains(t, out, "kernel.perf_event_paranoid")
		return
	}
	require.Zero(t, status, out)
	checkProfile(t, out, dir)

	status, out = m.ask("profile", "control-plane", "--duration", "1s", "--out", filepath.Join(dir, "plane"), "-o", "json")
	require.Zero(t, status, out)
	require.FileExists(t, filepath.Join(dir, "plane", "profile.svg"))
}

// checkProfile compares the table with the stacks, and both with what must be in them.
func checkProfile(t *testing.T, out, dir string) {
	t.Helper()
	var p profile.Profile
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	require.Positive(t, p.Samples)
	require.Greater(t, p.Frames, 0.2, "frames with names")
	var sum, worked int64
	for _, th := range p.Threads {
		if sum += th.Samples; strings.HasPrefix(th.Name, "wrk:worker_") {
			worked += th.Samples
			require.Positive(t, th.CPU)
		}
	}
	require.Equal(t, p.Samples, sum)
	require.Positive(t, worked, out)

	folded, err := os.Open(filepath.Join(dir, "stacks.folded"))
	require.NoError(t, err)
	defer folded.Close()
	stacks, err := flamegraph.Unfold(folded)
	require.NoError(t, err)
	var total int64
	connection := false
	for _, s := range stacks {
		total += s.Count
		connection = connection || strings.Contains(strings.Join(s.Frames, ";"), "Envoy::Http::Http1::")
	}
	require.Equal(t, p.Samples, total)
	require.True(t, connection, "no stack is in Envoy's HTTP/1.1 codec")
}

// callUntilStopped repeats calls of a sidecar.
func callUntilStopped(t *testing.T, url string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var calling sync.WaitGroup
	transport := &http.Transport{}
	for range 4 {
		calling.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				resp, err := (&http.Client{Transport: transport}).Get(url)
				if err == nil {
					_ = resp.Body.Close() // it is empty or small
				}
			}
		})
	}
	return func() {
		close(done)
		calling.Wait()
		transport.CloseIdleConnections()
	}
}
