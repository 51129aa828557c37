package envoy

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestArguments(t *testing.T) {
	o := Options{Bootstrap: "b.json", DrainTime: 1500 * time.Millisecond, LogLevel: "info",
		ComponentLogLevel: "misc:error", LogFormat: "%v", LocalIPv6: true, ExtraArgs: []string{"--mode", "validate"}}
	require.Equal(t, "--config-path b.json --disable-hot-restart --allow-unknown-static-fields --drain-strategy immediate "+
		"--drain-time-s 2 --file-flush-interval-msec 1000 --local-address-ip-version v6 --log-level info "+
		"--component-log-level misc:error --log-format %v --concurrency "+strconv.Itoa(runtime.NumCPU())+" --mode validate", strings.Join(o.args(), " "))
	o = Options{Concurrency: 3, FlushInterval: 20 * time.Millisecond, FlushKB: 8}
	args := strings.Join(o.args(), " ")
	require.Contains(t, args, "--concurrency 3 --file-flush-min-size-kb 8")
	require.Contains(t, args, "--file-flush-interval-msec 20 ")
}

// startScript runs a shell script in place of Envoy, and returns after its first output.
func startScript(t *testing.T, script string) *Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	wrote := make(chan struct{})
	p, err := Start(Options{Path: path, Output: &firstWrite{wrote: wrote}})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	select {
	case <-wrote:
	case <-time.After(patience):
		t.Fatal("the script did not speak")
	}
	return p
}

// firstWrite closes wrote at the first write.
type firstWrite struct {
	once  sync.Once
	wrote chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.wrote) })
	return len(p), nil
}

func TestStopSendsSIGTERM(t *testing.T) {
	p := startScript(t, "trap 'exit 7' TERM\necho up\nwhile :; do sleep 0.01; done\n")
	require.False(t, p.Stop(patience), "it had to be killed")
	require.Equal(t, "exit status 7", Ending(p.Err()))
}

func TestStopKillsAfterTheTimeout(t *testing.T) {
	p := startScript(t, "trap '' TERM\necho up\nwhile :; do sleep 0.01; done\n")
	require.True(t, p.Stop(10*time.Millisecond))
	require.Equal(t, "signal: killed", Ending(p.Err()))
	require.ErrorIs(t, syscall.Kill(p.Pid(), 0), syscall.ESRCH)
}

func TestStartFails(t *testing.T) {
	_, err := Start(Options{Path: "/nowhere/envoy"})
	require.ErrorContains(t, err, "cannot start Envoy")
}
